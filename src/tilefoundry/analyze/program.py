"""What analyses ask of one function: statements, trips, units, who holds what.

One :class:`Program` is one function at one binding of its open extents.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod

from tilefoundry.analyze.figure import Binding, Figure, Undecidable, undecided
from tilefoundry.analyze.flow import UPDATES, Flow, Site, flow
from tilefoundry.analyze.homes import Homes
from tilefoundry.analyze.sums import Largest, Sum, largest, moves, summed
from tilefoundry.analyze.trips import ONCE, Trips, trips
from tilefoundry.ir.expr import Dim, LoopVar, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import CALL, Loop, Node
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import IMMEDIATE, TensorType, TupleType
from tilefoundry.ops.base import Context
from tilefoundry.targets import Target
from tilefoundry.targets.contract.copy import Side
from tilefoundry.targets.contract.multicast import divided, shared_axes
from tilefoundry.targets.contract.place import window_of
from tilefoundry.targets.contract.registry import contract_at


class Program:
    """One function of a module on its target, with its open extents bound by ``bind``."""

    def __init__(
        self, module: Module, func: Func, target: Target, context: Context, bind: Binding
    ) -> None:
        self.module, self.func = module, func
        self.target, self.context, self.bind = target, context, bind
        self.flow: Flow = flow(func)
        self._trips: dict[tuple[Loop, ...], Trips | Undecidable] = {(): ONCE}
        self._splits: dict[Node, frozenset[Axis]] = {}
        self._sums: dict[tuple[tuple[Loop, ...], Dim], Sum] = {}
        self._largest: dict[Dim, Largest] = {}

    @cached_property
    def homes(self) -> Homes:
        """Places in storage as the program is authored."""
        return Homes(self.flow, self.target.default_storage)

    @cached_property
    def in_place(self) -> Homes:
        """Places where elementwise results may overwrite an operand that dies."""
        return Homes(self.flow, self.target.default_storage, in_place=True)

    @property
    def levels(self) -> tuple[str, ...]:
        return self.target.levels

    @cached_property
    def meshes(self) -> list[Mesh]:
        """Every mesh in force somewhere, in program order."""
        found = [s.mesh for s in self.flow.sites] + [s.mesh for s, _ in self.flow.scopes]
        return list(dict.fromkeys(m for m in found if m.axes))

    def units(self, level: str) -> int:
        """Units of ``level`` that the program ever uses; 0 if it arranges none."""
        sets = {m.at(level): m for m in self.meshes if m.at(level)}
        used: set[int] = set()
        for mesh in sets.values():
            used.update(mesh.units(level))
        return len(used)

    def around(self, level: str) -> tuple[str, ...]:
        """Levels that programs may leave out, directly outside of ``level``, which this one
        has declared."""
        declared = {t.level for t in self.module.topologies}
        outer = self.levels[: self.levels.index(level)]
        return tuple(x for x in outer if x in self.target.optional_levels and x in declared)

    def placed(self, level: str) -> int:
        """Units of ``level`` that the device runs: those of every unit of the levels around."""
        sizes = {t.level: t.size for t in self.module.topologies}
        return self.units(level) * prod(self.units(x) or sizes[x] for x in self.around(level))

    @cached_property
    def used_levels(self) -> tuple[str, ...]:
        """Levels that some mesh arranges, outermost first."""
        return tuple(x for x in self.levels if any(m.at(x) for m in self.meshes))

    def trips(self, nest: tuple[Loop, ...]) -> Trips:
        """Executions of the body of ``nest``; raises :class:`Undecidable`."""
        if nest not in self._trips:
            try:
                self._trips[nest] = trips(nest, self.bind)
            except Undecidable as why:
                self._trips[nest] = why
        found = self._trips[nest]
        if isinstance(found, Undecidable):
            raise found
        return found

    def summed(self, nest: tuple[Loop, ...], amount: Dim) -> Sum:
        """``amount`` at every trip of ``nest``; raises :class:`Undecidable`."""
        if not moves(amount, (x.var for x in nest)):
            return Sum(((amount, self.trips(nest)),))
        if (nest, amount) not in self._sums:
            self._sums[nest, amount] = summed(nest, self.bind, amount)
        return self._sums[nest, amount]

    def largest(self, amount: Dim) -> Largest:
        """The largest of ``amount`` over the steps and units; raises :class:`Undecidable`."""
        if isinstance(amount, int):
            return Largest(Figure(amount), {})
        if amount not in self._largest:
            self._largest[amount] = largest(self.flow.loops, self.bind, amount)
        return self._largest[amount]

    def most(self, amount: Dim) -> Figure:
        """:meth:`largest` as a figure: undecided where it cannot be told."""
        try:
            return self.largest(amount).figure
        except Undecidable as why:
            return undecided(why.reason)

    def span(self, loop: Loop) -> tuple[Dim, Dim, Dim]:
        """Start, stop and step of a loop, with open extents bound."""
        return self.bind(loop.start), self.bind(loop.stop), self.bind(loop.step)

    # ---- storage

    def owner(self, storage: str) -> str | None:
        """The level that owns an instance of ``storage``; None: all units share one."""
        known = self.target.storages.get(storage)
        return known.level if known else None

    def pool(self, storage: str) -> str | None:
        """The level for whose units the capacity of ``storage`` counts."""
        known = self.target.storages.get(storage)
        return (known.pool or known.level) if known else None

    def within(self, level: str | None, mesh: Mesh) -> list[Axis]:
        """Axes of ``mesh`` at ``level`` or outside of it; none for None."""
        if level is None:
            return []
        deep = self.levels.index(level)
        return [a for a in mesh.axes if self.levels.index(a.level) <= deep]

    # ---- how values vary from unit to unit

    def axes_of(self, *dims: Dim) -> frozenset[Axis]:
        """Mesh axes on whose coordinate an index expression depends, through loops too."""
        out: set[Axis] = set()
        for dim in dims:
            for symbol in symbols(dim):
                if isinstance(symbol, Coord) and symbol.axis:
                    out.add(symbol.axis)
                elif isinstance(symbol, LoopVar):
                    out |= self._var_axes.get(symbol, frozenset())
        return frozenset(out)

    @cached_property
    def _var_axes(self) -> dict[LoopVar, frozenset[Axis]]:
        out: dict[LoopVar, frozenset[Axis]] = {}
        for loop in self.flow.loops:  # outer loops come first
            held: set[Axis] = set()
            for x in (loop.start, loop.stop, loop.step):
                for symbol in symbols(x):
                    if isinstance(symbol, Coord) and symbol.axis:
                        held.add(symbol.axis)
                    elif isinstance(symbol, LoopVar):
                        held |= out.get(symbol, frozenset())
            out[loop.var] = frozenset(held)
        return out

    @cached_property
    def varies(self) -> dict[Node, frozenset[Axis]]:
        """Axes along which units hold different values under the same indices.

        A write into storage that the units of an axis share unites their effects: the
        result is one value again.
        """
        out: dict[Node, frozenset[Axis]] = {}
        heads = {c.head: c for _, c in self.flow.carried}
        results = {c.result: (loop, c) for loop, c in self.flow.carried}
        for _ in range(1 + len({len(s.nest) for s in self.flow.sites})):
            before = dict(out)
            for site in sorted(self.flow.site.values(), key=lambda s: s.at):
                node = site.node
                if node in heads:
                    c = heads[node]
                    held = out.get(c.init, frozenset()) | out.get(c.step, frozenset())
                elif node in results:
                    loop, c = results[node]
                    held = out.get(c.head, frozenset()) | out.get(c.step, frozenset())
                    held |= self._private(c.result, self._var_axes[loop.var])
                else:
                    held = frozenset[Axis]().union(*(out.get(a, frozenset()) for a in node.args))
                    held |= self.axes_of(*_dims(node))
                    if node.op.name == "local":
                        held |= {d.axis for d in _first(node.args[0]).digits}
                    if node.op.name in UPDATES:
                        held = self._private(node, held)
                out[node] = held
            if out == before:
                break
        return out

    def _private(self, node: Node, axes: Iterable[Axis]) -> frozenset[Axis]:
        """Those of ``axes`` whose units do not share the storage of ``node``."""
        owner = self.owner(_first(node).storage)
        if owner is None:
            return frozenset()
        deep = self.levels.index(owner)
        return frozenset(a for a in axes if self.levels.index(a.level) <= deep)

    # ---- who executes

    def splits(self, node: Node) -> frozenset[Axis]:
        """Axes in force along which the units divide the work of ``node``."""
        if node in self._splits:
            return self._splits[node]
        held: set[Axis] = set()
        for arg in (node, *node.args):
            for type in _types(arg):
                held |= {d.axis for d in type.digits}
        found = frozenset(a for a in held if a in node.mesh.axes and a.extent > 1)
        self._splits[node] = found
        return found

    def holders(self, site: Site) -> tuple[Axis, ...]:
        """Axes whose every unit executes ``site`` (its part of it): those that the result is
        split on, and those that hold a copy of their own.

        Units that share the result's storage, and whose statement is the same, do it once.
        """
        node = site.node
        storage = _first(node).storage
        own = set(self.within(self.owner(storage), node.mesh))
        own |= self.splits(node) | self.differs(site)
        return tuple(a for a in node.mesh.axes if a in own)

    def differs(self, site: Site) -> frozenset[Axis]:
        """Axes along which units do different things at ``site``, splits aside: its value
        varies, or its loops' trips do, or what it writes and where."""
        node = site.node
        out = set(self.varies[node])
        out |= {a for x in site.nest for a in self.axes_of(x.start, x.stop, x.step)}
        if node.op.name in UPDATES:
            out |= self.axes_of(*_dims(node)).union(*(self.varies[a] for a in node.args[1:]))
        return frozenset(a for a in out if a in node.mesh.axes)

    def multicast(self, site: Site) -> tuple[Axis, ...]:
        """Axes of a cluster along which a scheduled load is made once for all units."""
        node = site.node
        if node.op.name != "schedule" or len(node.args) != 2:
            return ()
        source, place = node.args
        axes = shared_axes(site.mesh, self.owner(place.tensor.storage), self.varies[source],
                           place.tensor, site.nest)  # fmt: skip
        if not axes or source.tensor.storage != self.target.default_storage:
            return ()
        contract = contract_at(getattr(node.attrs["op"], "path", ""))
        near, far = Side(source.tensor, window_of(source)), Side(place.tensor)
        cut = divided(contract, self.levels[-1], site.mesh, near, far, axes)
        return () if cut is None else axes

    def distinct(self, site: Site) -> tuple[Axis, ...]:
        """The holders without those that only repeat what others do."""
        own = self.splits(site.node) | self.differs(site)
        return tuple(a for a in site.mesh.axes if a in own)

    def callee(self, node: Node) -> Func | None:
        """The function that a call node calls."""
        if node.op is not CALL:
            return None
        return self.module.funcs.get(str(node.attrs["func"]))

    # ---- sizes

    def nbytes(self, type: TensorType, shape: tuple[Dim, ...] | None = None) -> Dim:
        """Bytes of the whole value, or of ``shape`` elements of its dtype."""
        bits = prod_dim(self.bind(x) for x in (type.shape if shape is None else shape))
        bits = bits * type.dtype.bits
        return -((-bits) // 8)

    def local_bytes(self, type: TensorType) -> Dim:
        """Bytes of the part that one unit holds."""
        return self.nbytes(type, type.local_shape)

    def part(self, type: TensorType, axes: Iterable[Axis]) -> Dim:
        """Bytes of the value divided over those of ``axes`` that it is split on."""
        inside = set(axes)
        over = prod(d.axis.extent for d in type.digits if d.axis in inside)
        return -((-self.nbytes(type)) // over)

    def laid(self, type: TensorType, axes: Iterable[Axis]) -> Dim:
        """Bytes from the first to the last element of that part as the layout's strides
        place them, gaps included; without strides, the part is compact."""
        layout = type.layout
        if layout is None or layout.strides is None:
            return self.part(type, axes)
        inside = set(axes)
        last: Dim = layout.offset
        for extent, stride, axis in zip(layout.modes, layout.strides, layout.axes, strict=True):
            if axis not in inside:
                last = last + (self.bind(extent) - 1) * self.bind(stride)
        size = -((-(last + 1) * type.dtype.bits) // 8)
        if layout.swizzle is None:
            return size
        block = 1 << (layout.swizzle.M + layout.swizzle.B)  # bytes are permuted inside these
        return -((-size) // block) * block


def prod_dim(dims: Iterable[Dim]) -> Dim:
    out: Dim = 1
    for x in dims:
        out = out * x
    return out


def _types(node: Node) -> tuple[TensorType, ...]:
    return node.type.items if isinstance(node.type, TupleType) else (node.type,)


def _first(node: Node) -> TensorType:
    """The type of a tensor, or of the first item of a tuple."""
    return next((t for t in _types(node) if t.storage != IMMEDIATE), _types(node)[0])


def _dims(node: Node) -> list[Dim]:
    """Index expressions among the attributes."""
    from tilefoundry.ir.expr import Expr

    out: list[Dim] = []
    for name, value in node.attrs.items():
        if name == "type":
            continue
        items = value if isinstance(value, tuple) else (value,)
        out += [x for x in items if isinstance(x, Expr)]
    return out


types_of, first_type = _types, _first
