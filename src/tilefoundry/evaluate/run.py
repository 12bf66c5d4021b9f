"""Running a function: statements in order, units in lock-step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilefoundry.check.vary import symbols_of, written_through
from tilefoundry.diag import Refusal, Span, refuse
from tilefoundry.evaluate.bind import bind_dims, check_input, concrete
from tilefoundry.evaluate.lanes import Enumeration, Key, Lanes, join, project, uniform
from tilefoundry.evaluate.write import unite
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, LoopVar, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import (
    CALL,
    CONST,
    ITEM,
    Block,
    Carried,
    Loop,
    Node,
    Return,
    Scope,
    Structural,
)
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang.parse import module_context
from tilefoundry.ops.base import operands, seen, torch_dtype
from tilefoundry.targets.instructions import meaning


@dataclass(frozen=True)
class Active:
    """Which units still run a loop whose trips differ: coordinate tuples on ``axes``."""

    axes: tuple[Axis, ...]
    keys: frozenset[Key]


class Evaluator:
    """Evaluates the functions of one module on one device."""

    def __init__(self, module: Module, device: str) -> None:
        self.module = module
        self.device = device
        self.context = module_context(module)
        self.enumeration = Enumeration()

    def call(
        self,
        func: Func,
        inputs: list[Any],
        weights: Mapping[str, Any],
        dims: Mapping[Sym, int] | None = None,
    ) -> tuple[Any, ...]:
        """One function on whole tensors."""
        import torch

        named: dict[str, Any] = {}
        plain = [p for p in func.params if p.name not in func.weights]
        if len(inputs) != len(plain):
            refuse("input-count", func.span, func=func.name, want=len(plain), got=len(inputs))
        for param, value in zip(plain, inputs, strict=True):
            named[param.name] = value
        for param in func.params:
            if param.name in func.weights and param.name not in named:
                if param.name not in weights:
                    refuse("weight-missing", param.span, name=param.name, func=func.name)
                named[param.name] = weights[param.name]
        for name, value in named.items():
            if not isinstance(value, torch.Tensor):
                refuse("input-form", func.span, name=name, got=type(value).__name__)
        bound = bind_dims(func, named, dims or {})
        for param in func.params:
            check_input(param, named[param.name], bound)
        body = self._variant(func, bound)
        frame = Run(self, body, bound, weights)
        for param in body.params:
            frame.values[param] = uniform(named[param.name].to(self.device))
        with torch.no_grad(), torch.device(self.device):
            return frame.run()

    def _variant(self, func: Func, dims: Mapping[Sym, int]) -> Func:
        by_name = {s.name: v for s, v in dims.items()}
        for variant in func.variants:
            if variant.lo <= by_name[variant.dim] <= variant.hi:
                return self._variant(variant.func, dims)
        return func


class Run:
    """One execution of one function."""

    def __init__(
        self, owner: Evaluator, func: Func, dims: Mapping[Sym, int], weights: Mapping[str, Any]
    ) -> None:
        self.owner = owner
        self.func = func
        self.weights = weights
        self.values: dict[Node, Lanes] = {}
        self.symbols: dict[Sym, Lanes] = {s: uniform(v) for s, v in dims.items()}
        self.active: list[Active] = []
        self._plans: dict[Node, tuple[Sym, ...]] = {}
        self._through = written_through(func.body)
        self._last = _last_uses(func)

    def run(self) -> tuple[Any, ...]:
        returned = self.block(self.func.body)
        assert returned is not None, self.func.name
        out: list[Any] = []
        for value in returned.values:
            lanes = self.values[value]
            assert not lanes.axes, f"{value} differs between units"  # check.vary refuses it
            out.append(lanes.one)
        return tuple(out)

    def block(self, block: Block) -> Return | None:
        for stmt in block.stmts:
            match stmt:
                case Return():
                    return stmt
                case Scope():
                    found = self.block(stmt.body)
                    if found is not None:
                        return found
                case Loop():
                    self.loop(stmt)
                case Node():
                    self.values[stmt] = self.node(stmt)
            for dead in self._last.get(stmt, ()):
                self.values.pop(dead, None)
        return None

    # Loops

    def loop(self, loop: Loop) -> None:
        for carried in loop.carried:
            self.values[carried.head] = self.values[carried.init]
        bounds = [self.index(x, Mesh(), loop.span) for x in (loop.start, loop.stop, loop.step)]
        axes = join(b.axes for b in bounds)
        keys = self._keys(axes, self._mesh_of(loop))
        trips: dict[Key, tuple[int, int, int]] = {}
        for key in keys:
            start, stop, step = (b.parts[project(axes, key, b.axes)] for b in bounds)
            trips[key] = (start, step, max(0, -((start - stop) // step)))
        most = max((n for _, _, n in trips.values()), default=0)
        for j in range(most):
            running = {k: s + j * step for k, (s, step, n) in trips.items() if j < n}
            self.symbols[loop.var] = Lanes(axes, running)
            uneven = len(running) < len(trips) or (
                axes and len(set(t[2] for t in trips.values())) > 1
            )
            if axes:
                self.active.append(Active(axes, frozenset(running)))
            before = {c: self.values[c.head] for c in loop.carried}
            if uneven:
                for c in loop.carried:
                    self._own(c, before[c], axes)
            self.block(loop.body)
            # a step may be another's head, so that all steps are read before a head changes
            steps = {c: self.values[c.step] for c in loop.carried}
            for c, after in steps.items():
                in_place = c in self._through and self._shared(c.head.tensor, axes)
                if len(running) < len(trips) and not in_place:
                    after = self._mix(before[c], after, axes, running)
                self.values[c.head] = after
            if axes:
                self.active.pop()
        for c in loop.carried:
            final = self.values[c.head]
            self.values[c.result] = replace(final, owner=None) if not self.active else final

    def _own(self, c: Carried, value: Lanes, axes: tuple[Axis, ...]) -> None:
        """Track who writes a shared destination while units' trips differ."""
        import torch

        if value.owner is None and not value.axes and self._shared(c.head.tensor, axes):
            value.owner = torch.zeros(value.one.shape, dtype=torch.int32)

    def _shared(self, type: TensorType, axes: tuple[Axis, ...]) -> bool:
        return all(self.owner.context.shared(type.storage, a.level) for a in axes)

    def _mix(
        self, before: Lanes, after: Lanes, axes: tuple[Axis, ...], running: Mapping[Key, int]
    ) -> Lanes:
        """Units that run take the new value, the others keep the old one."""
        wide = join([before.axes, after.axes, axes])
        parts: dict[Key, Any] = {}
        for key in self._all_keys(wide):
            runs = project(wide, key, axes) in running
            source = after if runs else before
            part = project(wide, key, source.axes)
            if part in source.parts:
                parts[key] = source.parts[part]
        return Lanes(wide, parts)

    def _mesh_of(self, loop: Loop) -> Mesh:
        from tilefoundry.ir.node import nodes

        first = next(iter(nodes(loop.body)), None)
        return first.mesh if first is not None else Mesh()

    # Units

    def _all_keys(self, axes: tuple[Axis, ...]) -> tuple[Key, ...]:
        return self.owner.enumeration.keys(axes, Mesh())

    def _keys(self, axes: tuple[Axis, ...], mesh: Mesh) -> list[Key]:
        """Coordinate tuples of the units that execute here."""
        keys = list(self.owner.enumeration.keys(axes, mesh))
        for active in self.active:
            shared = tuple(a for a in active.axes if a in axes)
            if not shared:
                continue
            allowed = {project(active.axes, k, shared) for k in active.keys}
            keys = [k for k in keys if project(axes, k, shared) in allowed]
        return keys

    def index(self, value: Dim, mesh: Mesh, span: Span | None) -> Lanes:
        """An index expression, per unit where it depends on one."""
        if isinstance(value, int):
            return uniform(value)
        symbols = sorted(ix.symbols(value), key=lambda s: s.key)
        axes = self._axes_of(symbols)
        parts: dict[Key, int] = {}
        for key in self._keys(axes, mesh):
            env = self._environment(symbols, axes, key)
            try:
                parts[key] = ix.evaluate(value, env)
            except ZeroDivisionError:
                refuse("divide-by-zero", span, op="a loop's bound")
        return Lanes(axes, parts)

    def _axes_of(self, symbols: Sequence[Sym]) -> tuple[Axis, ...]:
        found: list[tuple[Axis, ...]] = []
        for s in symbols:
            if isinstance(s, Coord):
                assert s.axis is not None
                found.append((s.axis,))
            elif isinstance(s, (LoopVar, OpenDim)):
                found.append(self.symbols[s].axes)
        return join(found)

    def _environment(
        self, symbols: Sequence[Sym], axes: tuple[Axis, ...], key: Key
    ) -> dict[Sym, int]:
        at = dict(zip(axes, key, strict=True))
        env: dict[Sym, int] = {}
        for s in symbols:
            if isinstance(s, Coord):
                assert s.axis is not None
                env[s] = at[s.axis]
            else:
                lanes = self.symbols[s]
                env[s] = lanes.parts[tuple(at[a] for a in lanes.axes)]
        return env

    # Nodes

    def node(self, node: Node) -> Lanes:
        args = [None if a is None else self.values[a] for a in operands(node)]
        symbols = self._symbols(node)
        axes = join([*(a.axes for a in args if a is not None), self._axes_of(symbols)])
        if node.op.name == "local":
            split = seen(node.args[0].tensor, node.mesh).digits
            axes = join([axes, tuple(d.axis for d in split)])
        assert all(a.level in node.mesh.levels for a in axes), node  # check.vary refuses it
        keys = self._keys(axes, node.mesh)
        if node.op.name == "insert_slice":
            dst = args[0]
            assert dst is not None
            extra = tuple(a for a in axes if a not in dst.axes)
            if extra and self._shared(node.tensor, extra):
                return self._insert(node, args, symbols, axes, keys)
        parts: dict[Key, Any] = {}
        for key in keys:
            picked = [None if a is None else a.parts[project(axes, key, a.axes)] for a in args]
            env = self._environment(symbols, axes, key)
            if node.op.name in ("slice", "insert_slice") and args[0] is not None:
                self._read(node, args[0], axes, key, env)
            parts[key] = self.apply(node, picked, env, axes, key)
        owner = args[0].owner if node.op.name == "reshard" and args and args[0] else None
        return Lanes(axes, parts, owner)

    def _symbols(self, node: Node) -> tuple[Sym, ...]:
        found = self._plans.get(node)
        if found is None:
            found = self._plans[node] = tuple(sorted(symbols_of(node), key=lambda s: s.key))
        return found

    def _read(
        self, node: Node, src: Lanes, axes: tuple[Axis, ...], key: Key, env: Mapping[Sym, int]
    ) -> None:
        """No unit may read what another unit writes without an order between them."""
        if src.owner is None or node.op.name != "slice":
            return
        from tilefoundry.ops.slice import OP as SLICE

        attrs = concrete(node.attrs, env)
        window = SLICE.evaluate([src.owner], attrs, node.type)
        mine = self._number(axes, key)
        if bool(((window != 0) & (window != mine)).any()):
            refuse("race-read", node.span, name=node.args[0].name or "the value")

    def _number(self, axes: tuple[Axis, ...], key: Key) -> int:
        number = 0
        for axis, at in zip(axes, key, strict=True):
            number = number * axis.extent + at
        return number + 1

    def _insert(
        self,
        node: Node,
        args: list[Lanes | None],
        symbols: Sequence[Sym],
        axes: tuple[Axis, ...],
        keys: list[Key],
    ) -> Lanes:
        """Writes of all units into the one destination they share."""
        dst, update = args
        assert dst is not None and update is not None
        writes: dict[Key, list[tuple[int, tuple[int, ...], Any]]] = {}
        for key in keys:
            attrs = concrete(node.attrs, self._environment(symbols, axes, key))
            value = update.parts[project(axes, key, update.axes)]
            place = project(axes, key, dst.axes)
            writes.setdefault(place, []).append((self._number(axes, key), attrs["offsets"], value))
        parts = dict(dst.parts)
        owner = dst.owner
        for place, items in writes.items():
            parts[place], owner = unite(dst.parts[place], items, owner, node)
        return Lanes(dst.axes, parts, owner)

    def apply(
        self,
        node: Node,
        args: list[Any],
        env: Mapping[Sym, int],
        axes: tuple[Axis, ...],
        key: Key,
    ) -> Any:
        """One operation on the tensors of one unit (or of all)."""
        if node.op is CONST:
            return self._constant(node, env)
        if node.op is ITEM:
            return args[0][node.attrs["index"]]
        if node.op is CALL:
            return self._call(node, args, env)
        assert not isinstance(node.op, Structural), node
        attrs = self._concrete(node, node.attrs, env)
        if node.op.name == "schedule":
            attrs["meaning"] = meaning(node.attrs["op"], node.span)
        if node.op.name == "local":
            attrs["parts"] = self._local(node, dict(zip(axes, key, strict=True)), env)
        type = self._concrete(node, node.type, env)
        for item in type.items if isinstance(type, TupleType) else (type,):
            for extent in item.shape:
                if isinstance(extent, int) and extent < 0:
                    refuse("type-extent", node.span, extent=extent)
        try:
            return _as_typed(node, node.op.evaluate(args, attrs, type), type)  # type: ignore[attr-defined]
        except Refusal as refusal:
            placed = (d if d.span else replace(d, span=node.span) for d in refusal.diags)
            raise Refusal(*placed) from None

    def _concrete(self, node: Node, value: Any, env: Mapping[Sym, int]) -> Any:
        """Integers for index expressions, of which one may divide by zero."""
        try:
            return concrete(value, env)
        except ZeroDivisionError:
            refuse("divide-by-zero", node.span, op=f"tf.{node.op.name}")

    def _constant(self, node: Node, env: Mapping[Sym, int]) -> Any:
        import torch

        value = node.attrs["value"]
        if isinstance(value, Expr):
            value = self._concrete(node, value, env)
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None).to(
            torch_dtype(node.tensor.dtype)
        )

    def _local(self, node: Node, at: Mapping[Axis, int], env: Mapping[Sym, int]) -> Any:
        x = seen(node.args[0].tensor, node.mesh)
        if x.layout is None:
            return ()
        out: list[Any] = []
        for group in x.layout.groups(x.shape):
            extents = [ix.evaluate(x.layout.modes[m], env) for m in group]
            bound = [x.layout.axes[m] for m in group]
            out.append((extents, [None if a is None else at[a] for a in bound]))
        return tuple(out)

    def _call(self, node: Node, args: list[Any], env: Mapping[Sym, int]) -> Any:
        name = str(node.attrs["func"])
        func = self.owner.module.funcs[name]
        names: Any = node.attrs["names"]
        named: dict[str, Any] = dict(zip(names, args, strict=True))
        inputs = [named[p.name] for p in func.params if p.name not in func.weights]
        weights = {**self.weights, **{n: v for n, v in named.items() if n in func.weights}}
        out = self.owner.call(func, inputs, weights)
        return out if isinstance(node.type, TupleType) else out[0]


def _as_typed(node: Node, value: Any, type: Any) -> Any:
    """The evaluated value has the derived shape and dtype, or the operation is wrong."""
    types = type.items if isinstance(type, TupleType) else (type,)
    values = value if isinstance(type, TupleType) else (value,)
    for v, t in zip(values, types, strict=True):
        assert tuple(v.shape) == t.shape and v.dtype == torch_dtype(t.dtype), (
            f"{node.op.name}: {tuple(v.shape)} {v.dtype} for {t}"
        )
    return value


def _last_uses(func: Func) -> dict[Any, list[Node]]:
    """Values to drop after each statement: those of its own block, used last in it."""
    out: dict[Any, list[Node]] = {}
    kept = set(func.returns.values)

    def visit(block: Block, inherited: set[Node]) -> set[Node]:
        used_after: set[Node] = set()
        for stmt in reversed(block.stmts):
            used = _uses(stmt, visit)
            for node in used - used_after - inherited - kept:
                out.setdefault(stmt, []).append(node)
            used_after |= used
        return used_after

    def _uses(stmt: Any, visit: Any) -> set[Node]:
        if isinstance(stmt, Node):
            return set(stmt.args)
        if isinstance(stmt, Return):
            return set(stmt.values)
        assert isinstance(stmt, (Scope, Loop))
        if isinstance(stmt, Scope):
            # values of a scope outlive it, so their end is found in the block around it
            return {n for s in stmt.body.stmts for n in _uses(s, visit)}
        ends = {n for c in stmt.carried for n in (c.init, c.head, c.step)}
        inside = {n for s in stmt.body.stmts for n in _uses(s, visit)}
        return inside | ends

    visit(func.body, set())
    return out
