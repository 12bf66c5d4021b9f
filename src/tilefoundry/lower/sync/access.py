"""What each issue touches in memory that several threads see, and in asynchronous registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilefoundry.ir.expr import Dim, LoopVar, Sym, bounds, substitute, symbols
from tilefoundry.ir.mesh import Axis
from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.lower.sync.tree import Node, Tree, count, leaves
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.effects import Effects, effects
from tilefoundry.tir.program import Buffer, Counter, Issue, View, reach


@dataclass(eq=False)
class Access:
    """One operand of one issue: a window of ``store``, which several buffers may share,
    touched by the threads of ``mask``.

    ``engine`` says how it completes (:class:`tilefoundry.tir.effects.Effects`), ``role``
    tells a matrix product's accumulator (``acc``) from its operands. ``over``: it touches the
    same place of every CTA along these axes. ``origin``: the access that this one is a part of.
    """

    node: Node
    view: View
    store: int
    write: bool
    read: bool
    engine: str
    proxy: str
    mask: int
    role: str = ""
    over: tuple[Axis, ...] = ()
    origin: Access | None = None

    @property
    def whole(self) -> Access:
        return self.origin or self

    @property
    def scope(self) -> int:
        """The participants, those that issue nothing included."""
        return self.node.mask if self.origin is None else self.mask

    @property
    def buffer(self) -> Buffer:
        return self.view.buffer

    @property
    def fills(self) -> bool:
        """An asynchronous fill: its end is seen on an mbarrier only."""
        return self.engine == "mbarrier" and self.write


def completes_alone(node: Node) -> bool:
    """A copy that completes on an mbarrier."""
    return isinstance(node.stmt, Issue) and effects(node.stmt).completion == "mbarrier"


class Accesses:
    """All accesses of a kernel, per store of shared memory, and those to registers."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        target = tree.func.target
        inner = target.levels[-1]
        levels = {name: s.level for name, s in target.storages.items()}
        self.private = {n for n, level in levels.items() if level == inner}
        self.shared = {n for n, level in levels.items() if level not in (None, inner)}
        self._stores = _stores([b for b in tree.func.buffers if b.storage in self.shared])
        self.effects: dict[Node, Effects] = {}
        self.of: dict[Node, list[Access]] = {}
        self.stores: dict[int, list[Access]] = {}
        for node in leaves(tree):
            self._add(node)

    def _add(self, node: Node) -> None:
        issue = node.stmt
        assert isinstance(issue, Issue)
        effect = self.effects[node] = effects(issue)
        made: list[Access] = []
        written = {v.buffer for v in issue.writes}
        for n, view in enumerate(issue.reads):
            if isinstance(view, View) and not (issue.instr == TILED and n == 0):
                made += self._access(node, view, effect, False, True, "operand")
        for view in issue.writes:
            again = view.buffer in written and any(
                isinstance(r, View) and r.buffer is view.buffer for r in issue.reads
            )
            made += self._access(node, view, effect, True, again, "acc")
        self.of[node] = made
        for access in made:
            if access.buffer.storage in self.shared:
                self.stores.setdefault(access.store, []).append(access)

    def _access(
        self, node: Node, view: View, effect: Effects, write: bool, read: bool, role: str
    ) -> list[Access]:
        buffer = view.buffer
        if buffer.storage in self.shared:
            store = self._stores.setdefault(buffer, id(buffer))
            mask = self.tree.issuers(node) if effect.elected else node.mask
            engine, proxy = effect.completion, effect.proxy
            assert isinstance(node.stmt, Issue)
            over = reach(node.stmt)
            return [Access(node, view, store, write, read, engine, proxy, mask, role, over)]
        if buffer.storage in self.private:
            engine = effect.completion if effect.completion == "wgmma" else "none"
            mask = node.mask
            return [Access(node, view, id(buffer), write, read, engine, "generic", mask, role)]
        return []


def _stores(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    """One number for all buffers that overlap, directly or through others."""
    spans = [(o, o + slot_bytes(b), b) for b in buffers for o in b.offsets]
    store = {b: id(b) for b in buffers}
    for n, (lo, hi, a) in enumerate(spans):
        for start, stop, b in spans[n + 1 :]:
            if lo < stop and start < hi and store[a] != store[b]:
                old, new = store[b], store[a]
                store = {x: new if s == old else s for x, s in store.items()}
    return store


def bytes_of(view: View) -> int:
    """Bytes of a window in shared memory."""
    return prod(view.shape) * view.dtype.bits // 8


def joint(*groups: Sequence[Axis]) -> tuple[Axis, ...]:
    """Axes of several groups, each once, outermost first."""
    return tuple(sorted({a for g in groups for a in g}, key=lambda a: (-a.stride, a.name)))


def across(a: Access, b: Access) -> tuple[Axis, ...]:
    """Axes along which ``a`` of every CTA must be over before ``b``. Of an asynchronous fill
    the barrier counts the bytes that all of them send."""
    return () if a.fills and not b.over else joint(a.over, b.over)


def apart(a: Access, b: Access, same_time: bool) -> bool:
    """The windows have no element in common: at any time, or (``same_time``) while the
    loops around both have the same values."""
    if a.buffer is not b.buffer or a.over or b.over:
        return False  # what other CTAs touch lies elsewhere
    one, two = _box(a.view), _box(b.view)
    if one is None or two is None:
        return False
    for (start, extent), (other, length) in zip(one, two, strict=True):
        if not same_time and (_varies(start) or _varies(other)):
            continue
        lo, hi = bounds(other - start)
        if lo >= extent or -hi >= length:
            return True
    return False


def _box(view: View) -> list[tuple[Dim, int]] | None:
    """Start and extent of a window per axis of its buffer."""
    starts = view.starts
    if starts is None:
        return None
    return list(zip(starts, view.extents, strict=True))


def _varies(x: Dim) -> bool:
    return any(isinstance(s, (LoopVar, Counter)) for s in symbols(x))


def handed(a: Access, b: Access, same_time: bool) -> str:
    """How far apart the threads are that touch one element in ``a`` and then in ``b``:
    ``thread`` the same one, ``warp`` the same warp, ``role`` any of the participants."""
    if a.mask != b.mask or a.engine != "none" or b.engine != "none":
        return "role"
    if a.node is b.node and not any(_varies(x) for x in a.view.index):
        return _reach(a, b) if _exchanges(a) else "thread"
    mine, other = registers(a), registers(b)
    if mine is None or other is None or not same_place(a.view, b.view):
        return "role"
    if not same_time and (_depends(a.view) or _depends(b.view)):
        return "role"
    one, two = mine.buffer, other.buffer
    same = one.shape == two.shape and one.layout == two.layout and same_place(mine, other)
    if not same or mine.slot != other.slot or one.layout is None:
        return "role"
    units = prod(x.extent for x in set(one.layout.split_axes))
    if units != count(a.mask) or one.layout.partial:
        return "role"
    return _reach(a, b)


def _exchanges(a: Access) -> bool:
    return isinstance(a.node.stmt, Issue) and effects(a.node.stmt).exchanges


def _reach(a: Access, b: Access) -> str:
    return "warp" if _exchanges(a) or _exchanges(b) else "thread"


def _depends(view: View) -> bool:
    return any(_varies(x) for x in (*view.index, view.slot))


def registers(a: Access) -> View | None:
    """The register side of a copy."""
    issue = a.node.stmt
    if not isinstance(issue, Issue):
        return None
    if issue.instr != "copy" and not effects(issue).exchanges:
        return None
    sides = [v for v in (*issue.reads, *issue.writes) if isinstance(v, View) and v is not a.view]
    return sides[0] if len(sides) == 1 and sides[0].buffer.layout is not None else None


def same_place(a: View, b: View) -> bool:
    """Element by element the same place of the same slot of equal buffers."""
    if a.shape != b.shape or a.slot != b.slot:
        return False
    names: dict[Sym, Dim] = {v: w.expr() for v, w in zip(b.vars, a.vars, strict=True)}
    return a.index == tuple(substitute(x, names) for x in b.index)
