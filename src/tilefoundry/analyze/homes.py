"""Which values share one place in storage, and for which statements it is occupied.

A *home* is one place: a view lives in its base's home, an update in its destination's, a
loop-carried value in one home from before the loop to after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilefoundry.analyze.flow import UPDATES, VIEWS, Flow, Site
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import CONST, ITEM, PARAM, Carried, Loop, Node, Structural
from tilefoundry.ir.types import IMMEDIATE, TensorType


@dataclass(eq=False)
class Home:
    """One place: the value that asked for it, and the statements it is occupied for.

    ``slots`` of a ring; ``nodes`` the values that live here; ``needed`` the last statement
    that reads one of them.
    """

    founder: Node
    slots: int
    first: int
    last: int
    needed: int = 0
    nodes: list[Node] = field(default_factory=list)

    @property
    def mesh(self) -> Mesh:
        return self.founder.mesh

    @property
    def name(self) -> str:
        """The author's name of the first named value that lives here."""
        found = next((n.name for n in self.nodes if n.name), "")
        return found or f"<{self.founder.attrs.get('func', self.founder.op.name)}>"


class Homes:
    """Where each value lives and for how long (``in_place``: elementwise results take
    the home of an operand that dies with them). ``shared`` is the storage that all units
    see."""

    def __init__(self, flow: Flow, shared: str, in_place: bool = False) -> None:
        self.flow = flow
        self.shared = shared
        self.in_place = in_place
        self.of: dict[Node, Home] = {}
        self._returned = set(flow.returned)
        self._steps: dict[Node, list[Loop]] = {}
        self._inits: dict[Node, list[Loop]] = {}
        for loop, c in flow.carried:
            self._steps.setdefault(c.step, []).append(loop)
            self._inits.setdefault(c.init, []).append(loop)
        self._heads = {c.head: (loop, c) for loop, c in flow.carried}
        self._results = {c.result: (loop, c) for loop, c in flow.carried}
        self._claimed: set[Home] = set()
        for site in sorted(flow.site.values(), key=lambda s: s.at):
            if site.node.op is not CONST:
                self._place(site)
        self._extend()

    def __iter__(self) -> Iterator[Home]:
        """Every home once, in order of its first statement."""
        return iter(sorted(dict.fromkeys(self.of.values()), key=lambda h: h.first))

    def last_use(self, node: Node) -> int:
        """The last statement at which ``node`` itself is read: a use in a loop that it was
        made outside of lasts as long as the loop; one step's value lasts to the step's end."""
        made = self.flow.site[node]
        last = max(made.at, *(self._until(u, made) for u in self.flow.uses.get(node, ())), 0)
        for loop in self._steps.get(node, ()):
            last = max(last, self.flow.loops[loop][1])
        for loop in self._inits.get(node, ()):
            last = max(last, self.flow.loops[loop][0])
        return self.flow.end if node in self._returned else last

    def _until(self, use: Site, made: Site) -> int:
        outside = next((x for x in use.nest if x not in made.nest), None)
        return use.at if outside is None else self.flow.loops[outside][1]

    def _place(self, site: Site) -> None:
        node = site.node
        if node in self._heads:
            start = self._start(*self._heads[node])
            self._join(node, start) if start else self._found(node)
        elif node in self._results:
            loop, c = self._results[node]
            if self._same_place(loop, c):
                self._merge(self.of[c.step], self.of[c.head])
            self._join(node, self.of[c.head])
        elif (base := self._shares(site)) is not None:
            self._join(node, self.of[base])
            if node.op.name == "insert_slice":
                self._write_through(site)
        else:
            self._found(node)

    def _found(self, node: Node) -> None:
        at = self.flow.site[node].at
        slots = node.attrs.get("buffers", 1)
        home = Home(node, slots if isinstance(slots, int) else 1, at, at)
        self._join(node, home)

    def _join(self, node: Node, home: Home) -> None:
        self.of[node] = home
        home.nodes.append(node)
        home.needed = max(home.needed, self.last_use(node))
        home.last = max(home.last, home.needed)

    def _start(self, loop: Loop, c: Carried) -> Home | None:
        """The home that the head takes over: its start's, unless that is needed again."""
        home = self.of.get(c.init)
        if home is None or home in self._claimed:
            return None
        if home.founder.op is PARAM and c.step.op.name not in UPDATES:
            return None
        if home.needed > self.flow.loops[loop][0] or len(self._inits[c.init]) > 1:
            return None
        return home

    def _same_place(self, loop: Loop, c: Carried) -> bool:
        """The step's result can be written where the head is: nothing there is read later,
        and the result's home is this step's own."""
        made, own = self.flow.site.get(c.step), self.of.get(c.step)
        head = self.of[c.head]
        if made is None or own is None or own is head or own in self._claimed:
            return False
        self._claimed.add(own)
        if loop not in made.nest or own.founder.op is PARAM:
            return False
        # the place is occupied from its founder on, which may still read the head
        return head.needed < own.first or (
            head.needed == own.first
            and elementwise(own.founder)
            and self._read_alike(own.founder, head)
        )

    def _read_alike(self, node: Node, home: Home) -> bool:
        """``node`` reads one value at most of those in ``home``, and not re-arranged, so that
        each element can be overwritten when it has been read."""
        held = {a for a in node.args if self.of.get(a) is home}
        return len(held) <= 1 and all(a.op.name not in VIEWS for a in held)

    def _merge(self, gone: Home, kept: Home) -> None:
        for node in gone.nodes:
            self._join(node, kept)
        kept.slots = max(kept.slots, gone.slots)
        kept.first = min(kept.first, gone.first)

    def _write_through(self, site: Site) -> None:
        """An update made in its destination's storage, for this write only, is made there."""
        dst, update = site.node.args
        own, kept = self.of.get(update), self.of[dst]
        if own is None or own is kept or own.founder.op is PARAM or own.needed > site.at:
            return
        if update.tensor.storage == dst.tensor.storage == self.shared:
            self.of |= dict.fromkeys(own.nodes, kept)

    def _shares(self, site: Site) -> Node | None:
        """The operand in whose home the result lives, None if it needs its own."""
        node = site.node
        name = node.op.name
        if node.op is ITEM or name in VIEWS:
            return node.args[0] if node.args[0] in self.of else None
        if isinstance(node.op, Structural):
            return None
        if name in UPDATES:
            return node.args[0] if self._dies(node.args[0], site, given=True) else None
        if name == "schedule":
            return destination(node)
        if name == "cast" or (self.in_place and elementwise(node)):
            for arg in node.args:
                beside = [a for a in node.args if a is not arg and self.of.get(a)]
                alone = all(self.of[a] is not self.of.get(arg) for a in beside)
                if alone and self._dies(arg, site) and _fits(node, arg):
                    return arg
        return None

    def _dies(self, arg: Node, site: Site, given: bool = False) -> bool:
        """No value that lives where ``arg`` does is read after this statement; a parameter
        is the caller's, and only given up to an update (``given``)."""
        home = self.of.get(arg)
        if home is None or (home.founder.op is PARAM and not given):
            return False
        return home.needed <= site.at

    def _extend(self) -> None:
        for loop, c in self.flow.carried:
            home = self.of[c.head]
            home.last = max(home.last, self.flow.loops[loop][1])
        for home in set(self.of.values()):
            nest = self.flow.site[home.founder].nest
            if home.founder.op is PARAM:
                home.first, home.last = 0, self.flow.end
            elif home.slots > 1 and nest:  # slots stay in flight from step to step
                home.first = min(home.first, self.flow.loops[nest[0]][0])
                home.last = max(home.last, self.flow.loops[nest[0]][1])


def _fits(node: Node, arg: Node) -> bool:
    """The result takes no more room than ``arg`` and each unit holds the same part."""
    if not isinstance(node.type, TensorType) or not isinstance(arg.type, TensorType):
        return False
    made, old = node.type, arg.type
    if old.storage != made.storage or old.storage == IMMEDIATE or old.shape != made.shape:
        return False
    here, there = ({(d.axis, d.dim, d.inner) for d in t.digits} for t in (made, old))
    return here == there and made.dtype.bits <= old.dtype.bits


def elementwise(node: Node) -> bool:
    """One result element per element of the broadcast operands."""
    from tilefoundry.ops._elementwise import Elementwise

    return isinstance(node.op, Elementwise) or node.op.name == "cast"


def destination(node: Node) -> Node | None:
    """The operand that a scheduled instruction writes: it has the result's own type."""
    written = [a for a in node.args if a.type == node.type]
    if not written:
        return None
    return written[-1] if len(node.args) == 2 else written[0]
