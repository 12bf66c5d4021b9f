"""Where values are made, read and overwritten, so that updates can be done in place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from tilefoundry.check.rename import is_rename
from tilefoundry.ir.node import (
    CARRY,
    CONST,
    PARAM,
    RESULT,
    Block,
    Carried,
    Loop,
    Node,
    Return,
    Scope,
)
from tilefoundry.ir.program import Func
from tilefoundry.lower.views import VIEWS, is_single_term
from tilefoundry.ops.base import seen

Loops = tuple[Loop, ...]


@dataclass
class Use:
    """One read of a value: its position, the loops around it, who reads, and the operand by
    which it reads: the value itself, or a view of it."""

    at: int
    loops: Loops
    user: Node | Loop | Return
    by: Node


@dataclass(frozen=True)
class Clobber:
    """``write`` changes the place of ``value`` before ``use`` reads it."""

    write: Node
    value: Node
    use: Use


@dataclass
class Lives:
    """Positions of a function's statements in program order.

    ``uses`` are the operands as written; ``reads`` go through views: what reads a view reads
    the value, later than the view is made. Values that live in one place form a *class*:
    views with what they view, updates with what they update.
    """

    func: Func
    private: str
    """The storage that each unit has to itself."""
    at: dict[Node, int] = field(default_factory=dict)
    loops: dict[Node, Loops] = field(default_factory=dict)
    uses: dict[Node, list[Use]] = field(default_factory=dict)
    reads: dict[Node, list[Use]] = field(default_factory=dict)
    spans: dict[Loop, tuple[int, int]] = field(default_factory=dict)
    copies: set[Node] = field(default_factory=set)
    """What would be no statement of its own, but is a copy: reshards to the type that the value
    has already and reductions of single terms, where the value or the copy is updated while the
    other is still to be read; views that have no place for each of their elements, where they
    are updated."""

    def __post_init__(self) -> None:
        self._now = 0
        self._links: dict[Node, set[Node]] = {}
        self._kept: list[Node] = []
        self._classes: dict[Node, tuple[Node, ...]] = {}
        self._found: dict[Node, list[Clobber]] = {}
        for param in self.func.params:
            self._define(param, ())
        self._visit(self.func.body, ())
        self._carried: dict[Node, list[Carried]] = {}
        for loop in self.spans:
            for c in loop.carried:
                for n in {c.init, c.head, c.result}:
                    if n.op not in (CONST, PARAM):
                        self._carried.setdefault(n, []).append(c)
        self._solidify()
        self._separate()
        for node, uses in self.uses.items():
            for use in uses:
                self._through(node, use)

    def _define(self, node: Node, loops: Loops) -> None:
        self.at[node] = self._now
        self.loops[node] = loops

    def _read(self, node: Node, loops: Loops, user: Node | Loop | Return) -> None:
        self.uses.setdefault(node, []).append(Use(self._now, loops, user, node))

    def _visit(self, block: Block, loops: Loops) -> None:
        for stmt in block.stmts:
            self._now += 1
            match stmt:
                case Node():
                    for arg in stmt.args:
                        self._read(arg, loops, stmt)
                    self._define(stmt, loops)
                    for other in (viewed(stmt), updated(stmt)):
                        if other is not None:
                            self._link(stmt, other)
                    if self._keeps(stmt):
                        self._kept.append(stmt)
                case Scope():
                    self._visit(stmt.body, loops)
                case Return():
                    for value in stmt.values:
                        self._read(value, loops, stmt)
                case Loop():
                    inside = (*loops, stmt)
                    start = self._now
                    for c in stmt.carried:
                        self._read(c.init, loops, stmt)
                        self._define(c.head, inside)
                    self._visit(stmt.body, inside)
                    self._now += 1
                    for c in stmt.carried:
                        self._read(c.step, inside, stmt)
                        self._define(c.result, loops)
                    self.spans[stmt] = (start, self._now)

    # Places

    def _link(self, a: Node, b: Node) -> None:
        self._links.setdefault(a, set()).add(b)
        self._links.setdefault(b, set()).add(a)

    def _through(self, node: Node, use: Use) -> None:
        """``use`` reads ``node``, and what it is a view of."""
        if isinstance(use.user, Node) and (self.source(use.user) is node or skips(use.user, node)):
            return  # a view reads nothing, and what is overwritten is not read
        seen: Node | None = node
        while seen is not None:
            self.reads.setdefault(seen, []).append(use)
            seen = self.source(seen)

    def source(self, node: Node) -> Node | None:
        """What ``node`` is a view of."""
        if node in self.copies:
            return None
        return node.args[0] if self._keeps(node) else viewed(node)

    def _keeps(self, node: Node) -> bool:
        return is_kept(node) or is_single_term(node, self.private)

    def _solidify(self) -> None:
        """Padded and repeated values that are updated: there is no memory for what surrounds a
        value, and one place for all repetitions of an element."""
        for node in list(self.at):
            place = updated(node)
            while place is not None:
                if place.op.name in ("pad", "repeat_interleave") and place not in self.copies:
                    self.copies.add(place)
                    self._links[place].discard(place.args[0])
                    self._links[place.args[0]].discard(place)
                source = place.args[0] if self._keeps(place) else viewed(place)
                place = source or updated(place)

    def _separate(self) -> None:
        """Which reshards of a value to its own type, and reductions of single terms, are copies:
        those where one side is updated and the other is read after that."""
        for node in self._kept:
            below, above = self._around(node, {node.args[0]}), self._around(node.args[0], {node})
            last = {
                side: max((u.at for n in group for u in self.uses.get(n, ())), default=0)
                for side, group in (("below", below), ("above", above))
            }
            repeated = set(self.loops[node]) - set(self.loops[node.args[0]])
            changed = [
                side
                for side, group, other in (("below", below, "above"), ("above", above, "below"))
                if any(
                    updated(n) is not None
                    and self.at[n] >= self.at[node]
                    and (self.at[n] < last[other] or repeated)
                    for n in group
                )
            ]
            if changed:
                self.copies.add(node)
            else:
                self._link(node, node.args[0])

    def _around(self, start: Node, without: set[Node]) -> set[Node]:
        found, stack = set(without), [start]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += self._links.get(node, ())
        return found - without

    def members(self, node: Node) -> tuple[Node, ...]:
        """Every value that lives in the place of ``node``, whatever loops carry."""
        if node not in self._classes:
            group = tuple(sorted(self._around(node, set()), key=lambda n: self.at[n]))
            self._classes |= dict.fromkeys(group, group)
        return self._classes[node]

    def clobbered(self, node: Node) -> list[Clobber]:
        """What the update ``node`` destroys while it is still to be read."""
        group = self.members(node)
        if group[0] not in self._found:
            self._found[group[0]] = self._clobbers(group)
        return [c for c in self._found[group[0]] if c.write is node]

    def shareable(self, carried: Carried) -> bool:
        """One place can hold the carried value before, during and after its loop: no
        version of it is read after a later one is written."""
        return not self._clobbers(tuple(self.family(carried)))

    def family(self, carried: Carried) -> set[Node]:
        """Every value that would live in the carried value's place."""
        return self._closure(carried.init, carried.head, carried.step, carried.result)

    def _closure(self, *start: Node) -> set[Node]:
        found: set[Node] = set()
        stack = [*start]
        while stack:
            node = stack.pop()
            if node in found:
                continue
            found.add(node)
            stack += self._links.get(node, ())
            for c in self._carried.get(node, ()):
                stack += [c.init, c.head, c.step, c.result]
        return found

    def makers(self, node: Node) -> list[Node]:
        """The statements that write the place in which ``node`` would be made alone."""
        return [n for n in self._closure(node) if self._writes(n)]

    def untouched(self, node: Node) -> bool:
        """From where the update of ``node`` is made to ``node`` itself, nothing reads or
        writes what is updated, so that the update may be made in its slice."""
        update, around = node.args[1], self.loops[node]
        made = self.makers(update)
        if any(self.loops[m][: len(around)] != around for m in (update, *made)):
            return False
        first = min((self.at[m] for m in made), default=self.at[update])
        last = self.at[node]
        return not any(
            first <= at < last
            for n in self.members(node)
            for at in (
                *([self.at[n]] if self._writes(n) else ()),
                *(u.at for u in self.reads.get(n, ())),
            )
        )

    def is_read(self, fill: Node) -> bool:
        """Elements of ``fill`` may be read: it, or what a loop carries on from it, is an
        operand of a statement that does not update it."""
        stack, found = [fill], set[Node]()
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += [n for c in self._carried.get(node, ()) if c.init is node
                          for n in (c.head, c.result)]  # fmt: skip
        return any(
            isinstance(use.user, Node) and updated(use.user) is not use.by
            for node in found
            for use in self.reads.get(node, ())
        )

    def _clobbers(self, group: tuple[Node, ...]) -> list[Clobber]:
        """Reads of a value of ``group`` that find what a later statement wrote."""
        writes = sorted((n for n in group if self._writes(n)), key=lambda n: self.at[n])
        places = [self.at[w] for w in writes]
        inside: dict[Loop, list[Node]] = {}
        for w in writes:
            for loop in self.loops[w]:
                inside.setdefault(loop, []).append(w)
        out: list[Clobber] = []
        for value in group:
            own = set(self.loops[value])
            for use in self.reads.get(value, ()):
                first = bisect_right(places, self.at[value])
                found = writes[first : bisect_left(places, use.at)]
                found += [w for loop in use.loops if loop not in own for w in inside.get(loop, ())
                          if w is not value]  # fmt: skip
                if use.user in self.at and use.user is not value and self._writes(use.user):
                    n = bisect_left(places, use.at)
                    if n < len(writes) and writes[n] is use.user and not in_place(use, value):
                        found.append(writes[n])
                out += [Clobber(w, value, use) for w in dict.fromkeys(found)]
        return out

    def _writes(self, node: Node) -> bool:
        """The node's statement writes where its value lives."""
        if node.op in (CARRY, RESULT, PARAM, CONST) or node.op.name in ("empty", "item", "split"):
            return False
        return self.source(node) is None


def updated(node: Node) -> Node | None:
    """The operand whose place a node writes, by its meaning."""
    if node.op.name == "insert_slice":
        return node.args[0]
    if node.op.name == "schedule":
        kind = schedule_kind(node)
        if kind == "mma":
            return node.args[0]
        arity = 1 if kind == "copy" else operand_count(kind)
        return node.args[arity] if len(node.args) > arity else None
    return None


def operand_count(name: str) -> int:
    """How many operands the operation ``name`` demands."""
    from tilefoundry.ops import find
    from tilefoundry.ops.signature import Operand

    op = find(name)
    assert op is not None, name
    return sum(1 for p in op.params if isinstance(p, Operand) and not p.optional)


def schedule_kind(node: Node) -> str:
    """``copy``, ``mma`` or the operation's name of a schedule node."""
    from tilefoundry.targets.instructions import meaning

    return meaning(node.attrs["op"], node.span)[0]


def viewed(node: Node) -> Node | None:
    """What ``node`` only renames the elements of."""
    if node.op.name in (*VIEWS, "split", "item") or is_rename(node):
        return node.args[0]
    return None


def is_kept(node: Node) -> bool:
    """A reshard to the type that the value has already, outside device memory (``is_rename``)."""
    if node.op.name != "reshard" or node.tensor.storage == "gmem":
        return False
    before, after = seen(node.args[0].tensor, node.mesh), node.tensor
    return (before.storage, before.layout) == (after.storage, after.layout)


def skips(user: Node, node: Node) -> bool:
    """``user`` overwrites ``node`` as a whole and does not read it."""
    if user.op.name != "schedule" or updated(user) is not node or schedule_kind(user) == "mma":
        return False
    return user.args.count(node) == 1


def in_place(use: Use, value: Node) -> bool:
    """The reader may read ``value`` from the place that it writes."""
    write = use.user
    assert isinstance(write, Node)
    if write.op.name == "insert_slice":
        return True  # an update that lies in its destination is copied first
    if use.by is not value:
        return updated(write) is use.by and write.args.count(use.by) == 1
    if updated(write) is value and write.args.count(value) == 1:
        return True
    from tilefoundry.ops._elementwise import Elementwise

    if write.op.name == "schedule":
        from tilefoundry.ops import find

        return isinstance(find(schedule_kind(write)), Elementwise) and write.type == value.type
    return isinstance(write.op, Elementwise) and write.type == value.type
