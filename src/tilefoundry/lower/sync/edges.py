"""Which accesses of disjoint roles, and which asynchronous fills, others must wait for.

A store of shared memory is looked at level by level, innermost loop first. At one level its
touches are the statements of that loop's body that touch it, a whole inner loop being one
statement. Touches that conflict and lie in different statements need an edge: forward within
an iteration, or backward from ``slots`` iterations before. An edge is left out where others
imply it.

What another CTA of the cluster touches is no role's own: such pairs need an edge even where
the threads are the same, and only signals from all CTAs tell that it is over (``wide``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, bounds, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.lower.rings import counter_of, ring_count, trips
from tilefoundry.lower.sync.access import Access, Accesses, across, apart, joint
from tilefoundry.lower.sync.tree import Node, Tree
from tilefoundry.tir.program import Counter, For, When

FORWARD, BACKWARD = 0, 1
RELAY = "relay"
"""The role of an access that only waits for a fill, so that other CTAs may be told."""


@dataclass(eq=False)
class Touch:
    """What one role does to a store in one statement of a level."""

    item: Node
    mask: int
    store: int
    accesses: list[Access] = field(default_factory=lambda: list[Access]())
    fills: list[Access] = field(default_factory=lambda: list[Access]())
    """Asynchronous fills that its own threads have not waited for when it is over."""

    @property
    def write(self) -> bool:
        return any(a.write or a.role == RELAY for a in self.accesses)

    @property
    def scope(self) -> int:
        """The participants of the scope that its elected statements stand in."""
        masks = {a.node.mask for a in self.accesses}
        elected = all(a.engine in ("bulk", "mbarrier") for a in self.accesses)
        return masks.pop() if elected and len(masks) == 1 else self.mask

    @property
    def plain(self) -> list[Access]:
        return [a for a in self.accesses if a not in self.fills]


@dataclass(eq=False)
class Edge:
    """``target`` waits for ``source``, of this iteration or ``slots`` iterations before; for
    that of every CTA along the axes ``over``."""

    source: Touch
    target: Touch
    direction: int
    over: tuple[Axis, ...] = ()


@dataclass(eq=False)
class Level:
    """A loop's body, or the kernel's (``loop`` None), for one store: a ring of ``slots``."""

    loop: Node | None
    store: int
    slots: int
    count: Dim
    touches: list[Touch]
    edges: list[Edge] = field(default_factory=lambda: list[Edge]())


class Counts:
    """Running counts of loops; a counter is made where no expression counts."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.counters = {
            n.stmt.var: found
            for n in tree.walk()
            if isinstance(n.stmt, For) and (found := counter_of(n.stmt)) is not None
        }
        self.made: dict[Node, Counter] = {}

    def of(self, loop: Node | None) -> Dim:
        """0 in the first of all iterations of ``loop``, one more in each that follows."""
        if loop is None:
            return 0
        around: list[For] = [n.stmt for n in (*loop.loops, loop)]  # type: ignore[misc]
        found = ring_count(around, self.counters)
        if found is None:
            made = self.counters[around[-1].var] = Counter(f"{around[-1].var.name}_count")
            self.made[loop] = made
            found = made.expr()
        return found

    def peek(self, loop: Node) -> Dim | None:
        """The count if it needs no new counter."""
        return ring_count([n.stmt for n in (*loop.loops, loop)], self.counters)  # type: ignore[misc]


def ring_of(accesses: Sequence[Access], counts: Counts) -> tuple[Node | None, int]:
    """The loop whose iterations all of a store's accesses count slots by, and the slots:
    (None, 1) where it is no ring or not one that can be followed."""
    first = accesses[0]
    buffer = first.buffer
    if buffer.slots == 1 or any(
        a.buffer is not buffer or a.view.slot != first.view.slot for a in accesses
    ):
        return None, 1
    shared = [n for n in first.node.loops if all(n in a.node.loops for a in accesses)]
    for loop in reversed(shared):
        count = counts.peek(loop)
        if count is not None and count % buffer.slots == first.view.slot:
            return loop, buffer.slots
    return None, 1


def item_at(node: Node, loop: Node | None) -> Node:
    """The statement of the body of ``loop`` that holds ``node``: an inner loop or test, or
    the node itself."""
    item = node
    for above in node.above():
        if above is loop:
            break
        if isinstance(above.stmt, (For, When)):
            item = above
    return item


class Edges:
    """All levels of all stores, and what is ordered by their edges."""

    def __init__(self, tree: Tree, accesses: Accesses, counts: Counts) -> None:
        self.counts = counts
        self.levels: list[Level] = []
        self.forward: set[tuple[Access, Access]] = set()
        """(a, b): a of an iteration is over for all threads before b of that iteration."""
        self.backward: set[tuple[Access, Access]] = set()
        """(a, b): the last a on the same slot before this iteration is over before b."""
        self.rings: dict[int, tuple[Node | None, int]] = {}
        """The loop that fills the slots of a store, and their number (0: none twice)."""
        loops: list[Node | None] = [n for n in tree.walk() if isinstance(n.stmt, For)]
        loops.sort(key=lambda n: -len(n.loops))  # type: ignore[union-attr]
        for store, found in accesses.stores.items():
            self.rings[store] = self._ring(found)
        for loop in (*loops, None):
            for store, found in accesses.stores.items():
                self._level(loop, store, found)

    def _ring(self, found: Sequence[Access]) -> tuple[Node | None, int]:
        loop, slots = ring_of(found, self.counts)
        count = self.counts.peek(loop) if loop is not None else None
        again = count is None or bounds(count)[1] >= slots
        return loop, slots if again else 0

    def _slots(self, loop: Node | None, store: int, inside: Sequence[Access]) -> int:
        ring, slots = ring_of(inside, self.counts) if inside else (None, 1)
        return slots if loop is not None and ring is loop else 1

    def _level(self, loop: Node | None, store: int, found: Sequence[Access]) -> None:
        inside = [a for a in found if loop is None or loop in a.node.loops]
        touches: dict[tuple[Node, int], Touch] = {}
        for a in sorted(inside, key=lambda a: a.node.at):
            item = item_at(a.node, loop)
            key = item, a.mask
            if key not in touches:
                touches[key] = Touch(item, a.mask, store)
            touches[key].accesses.append(a)
        made = list(touches.values())
        for touch in made:
            touch.fills = [a for a in touch.accesses if a.fills and not self._seen(a, touch)]
        if not any(t.write for t in made):
            return
        if len({t.item for t in made}) < 2:
            return
        level = Level(loop, store, self._slots(loop, store, inside), 0, made)
        solver = _Solver(self, level, surely=False)
        pairs = solver.run()
        solver.record()
        answers = {(t, u) for u, t, _ in pairs}
        # Who signals in every iteration must wait in every iteration, and the other way round,
        # or one would run ahead: what an inner loop orders does not count, as it may not run.
        # A fill of that loop has no barrier out here; it is left out where nothing answers it.
        for pair in _Solver(self, level, surely=True).run():
            u, t, _ = pair
            inner = made[u].item.loop and made[u].fills
            if pair not in pairs and (not inner or (u, t) in answers):
                pairs.append(pair)
        level.edges = [
            Edge(made[u], made[t], direction, _across(made[u], made[t]))
            for u, t, direction in pairs
        ]
        if level.edges:
            level.count = self.counts.of(loop)
            self.levels.append(level)

    def _seen(self, fill: Access, touch: Touch) -> bool:
        """The role of ``touch`` waits for ``fill`` inside of it."""
        return any((fill, b) in self.forward for b in touch.accesses)


class _Solver:
    """Edges of one level: iteration i - slots, then iteration i, every edge once."""

    def __init__(self, edges: Edges, level: Level, surely: bool) -> None:
        self.edges = edges
        self.level = level
        self.surely = surely
        n = len(level.touches)
        self.known: list[set[int]] = [set() for _ in range(2 * n)]
        """Per copy of a touch, the copies that are over for all threads before it starts."""
        self.wide: list[dict[int, frozenset[Axis]]] = [{} for _ in range(2 * n)]
        """Those of them that are over in every CTA along some axes."""

    def run(self) -> list[tuple[int, int, int]]:
        """(source, target, direction) of each edge, touches by number."""
        level, n = self.level, len(self.level.touches)
        out = [(u, t, FORWARD) for u, t in self._pass(0)]
        if level.loop is not None:
            count = self.edges.counts.peek(level.loop)
            hi = float("inf") if count is None else bounds(count)[1]
            if hi >= level.slots:
                out += [(u, t - n, BACKWARD) for u, t in self._pass(n) if u < n]
        return out

    def _pass(self, base: int) -> list[tuple[int, int]]:
        n = len(self.level.touches)
        out: list[tuple[int, int]] = []
        for t in range(base, base + n):
            known = self.known[t]
            for w in range(base, t):
                if self._runs(t) and _fed(self.edges, self._touch(w), self._touch(t)):
                    known |= self.known[w]
            for v in range(t):
                if self._touch(v).mask & self._touch(t).mask == self._touch(t).mask:
                    known |= self.known[v] | self._inside(v, t)
                    self._learn(t, self.wide[v])
            for u in reversed(range(t)):
                over = frozenset(_across(self._touch(u), self._touch(t)))
                told = u in known and over <= self.wide[t].get(u, frozenset())
                if not told and self._needs(u, t):
                    out.append((u, t))
                    more = {u} | self._over(u)
                    known |= more
                    self._learn(t, dict.fromkeys(more, over))
        return out

    def _learn(self, t: int, more: Mapping[int, frozenset[Axis]]) -> None:
        wide = self.wide[t]
        for u, axes in more.items():
            if axes:
                wide[u] = wide.get(u, frozenset()) | axes

    def _touch(self, index: int) -> Touch:
        return self.level.touches[index % len(self.level.touches)]

    def _over(self, u: int) -> set[int]:
        """Copies that are over once touch ``u`` has signalled its end."""
        touch = self._touch(u)
        out = set(self.known[u])
        if touch.fills:
            return out
        for v in range(u + 1):
            other = self._touch(v)
            if other.mask & touch.mask == other.mask:
                if not other.fills:
                    out |= {v}
                out |= self.known[v] | self._inside(v, u)
        return out

    def _inside(self, v: int, t: int) -> set[int]:
        """Touches of the same inner loop as ``v`` that each end before it, known once it is
        over."""
        n = len(self.level.touches)
        copy, one = v // n * n, self._touch(v)
        out: set[int] = set()
        if not self._runs(v):
            return out
        for w in range(copy, copy + n):
            other = self._touch(w)
            if w != v and other.item is one.item and w < t and _inner(self.edges, other, one):
                out.add(w)
        return out

    def _runs(self, t: int) -> bool:
        """The loops inside of touch ``t`` run at least once, as far as that matters."""
        inside = {
            n
            for a in self._touch(t).accesses
            for n in a.node.loops
            if self.level.loop is None or self.level.loop in n.loops
        }
        return not self.surely or all(bounds(trips(n.stmt))[0] > 0 for n in inside)  # type: ignore[arg-type]

    def _needs(self, u: int, t: int) -> bool:
        n = len(self.level.touches)
        one, two = self._touch(u), self._touch(t)
        if one.item is two.item or not (one.write or two.write):
            return False
        same_iteration = u // n == t // n
        disjoint = not one.mask & two.mask
        same_time = same_iteration and not disjoint
        return any(
            clash(a, b)
            and (disjoint or a in one.fills or a.over or b.over)
            and not apart(a, b, same_time)
            for a in one.accesses
            for b in two.accesses
        )

    def record(self) -> None:
        """Keep what is known of pairs of accesses."""
        n = len(self.level.touches)
        for t in range(n):
            for u in self.known[t]:
                self._pairs(self.edges.forward, u, t)
            for u in self.known[t + n]:
                if u < n:
                    self._pairs(self.edges.backward, u, t)

    def _pairs(self, into: set[tuple[Access, Access]], u: int, t: int) -> None:
        if self._touch(u).item is self._touch(t).item and self._touch(t).item.loop:
            return  # a level further in says how the two are ordered
        for a in self._touch(u).accesses:
            for b in self._touch(t).accesses:
                into.add((a, b))


def clash(a: Access, b: Access) -> bool:
    """``b`` may not come before ``a`` is over, if they touch the same."""
    if b.role == RELAY:
        return a.fills
    if a.role == RELAY:
        return b.fills or bool(b.over)
    return a.write or b.write


def _across(one: Touch, two: Touch) -> tuple[Axis, ...]:
    pairs = ((a, b) for a in one.accesses for b in two.accesses if clash(a, b))
    return joint(*(across(a, b) for a, b in pairs))


def _inner(edges: Edges, one: Touch, two: Touch) -> bool:
    return all(any((a, b) in edges.forward for b in two.accesses) for a in one.accesses)


def _fed(edges: Edges, one: Touch, two: Touch) -> bool:
    """In the inner loop that both stand in, ``two`` always waits for ``one`` first."""
    return one.item is two.item and all(
        any((a, b) in edges.forward for a in one.accesses) for b in two.accesses
    )


def even(loop: Node, level: str, group: int | None = None) -> None:
    """Refuses a loop where threads meet, if its trips or those of one around it may differ
    between the units of ``level`` in a CTA, or in one aligned group of ``group`` of them."""
    if any(
        isinstance(s, Coord)
        and s.axis is not None
        and s.axis.level == level
        and not (group and s.axis.stride % group == 0 and s.axis.offset % group == 0)
        for n in (*loop.loops, loop)
        for x in (n.stmt.start, n.stmt.stop, n.stmt.step)  # type: ignore[union-attr]
        for s in symbols(x)
    ):
        refuse_uneven(loop, level)


def refuse_uneven(loop: Node, level: str) -> NoReturn:
    assert isinstance(loop.stmt, For)
    refuse("sync-loop-uneven", loop.stmt.span, loop=loop.stmt.var.name, level=level)


__all__ = [
    "BACKWARD",
    "FORWARD",
    "Counts",
    "Edge",
    "Edges",
    "Level",
    "Touch",
    "even",
    "refuse_uneven",
]
