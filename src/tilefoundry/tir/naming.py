"""A kernel in the form that is printed: names that Python can tell apart, loop variables and
view variables with the bounds that their text gives them.

What is printed and what is read back is this form; a kernel that has it already is kept.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tilefoundry.ir.expr import Dim, Expr, Sym, substitute, symbols
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.shard import P, ShardLayout
from tilefoundry.ir.spec import Tag
from tilefoundry.lang.statements import loop_variable
from tilefoundry.target import TargetRef
from tilefoundry.tir.program import (
    Advance,
    Barrier,
    Buffer,
    Counter,
    For,
    Issue,
    Operand,
    PrimFunc,
    Scalar,
    Stmt,
    Sync,
    View,
    When,
    With,
    fresh_vars,
)

WORDS: frozenset[str] = frozenset(
    {"T", "Tensor", "ConstTensor", "Mesh", "Layout", "Swizzle", "P", "Topology", "ReduceKind"}
    | {"UnaryKind", "BinaryKind", "range", "min", "max", "float"}
)
"""Names of the language that a printed kernel uses."""


def ring_name(buffer: Buffer) -> str:
    """The name that stands for all slots of a buffer."""
    return f"{buffer.name}_stages" if buffer.slots > 1 else buffer.name


def fresh(name: str, taken: Iterable[str]) -> str:
    """``name`` as an identifier that is not taken: ``scope``, ``scope_2``, ``scope_3``."""
    base = re.sub(r"\W", "_", name) or "x"
    if base[0].isdigit() or keyword.iskeyword(base):
        base = f"_{base}"
    found, n = base, 1
    while found in taken:
        n += 1
        found = f"{base}_{n}"
    return found


def private_storages(target: Any) -> frozenset[str]:
    """Storages of which each unit of the innermost level has its own; of another, a buffer
    that no axis splits is the same whoever uses it, and its mesh says nothing."""
    found = target.load() if isinstance(target, TargetRef) else target
    inner = found.levels[-1]
    return frozenset(name for name, s in found.storages.items() if s.level == inner)


def named(func: PrimFunc) -> PrimFunc:
    """``func`` in the printed form; the same object where it has it."""
    return _Naming(func).func()


class _Naming:
    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self._private = private_storages(func.target)
        self._taken: set[str] = set(WORDS)
        self._objects: dict[Any, Any] = {}
        self._env: dict[Sym, Dim] = {}
        self._roots: dict[str, str] = {}
        self._mesh = Mesh()

    def func(self) -> PrimFunc:
        func = self._func
        params = self._each(func.params, self._param)
        buffers = self._each(func.buffers, self._buffer)
        barriers = self._each(func.barriers, self._barrier)
        counters = self._each(func.counters, self._counter)
        body = self._each(func.body, self._stmt)
        return _with(
            func, params=params, buffers=buffers, barriers=barriers, counters=counters, body=body
        )

    # Declared objects

    def _name(self, name: str, tail: str = "") -> str:
        """A name of the whole kernel; ``tail`` is what its text ends in."""
        found = fresh(name + tail, self._taken).removesuffix(tail)
        while found + tail in self._taken:  # the number went behind the tail
            found = fresh(f"{found}_2", ())
        self._taken.add(found + tail)
        return found

    def _param(self, param: Buffer) -> Buffer:
        """A parameter's type leaves a layout out that says nothing."""
        plain = param.layout is not None and param.layout.is_plain
        made = self._buffer(_with(param, layout=None) if plain else param)
        self._objects[param] = made
        return made

    def _buffer(self, buffer: Buffer) -> Buffer:
        name = self._name(buffer.name, "_stages" if buffer.slots > 1 else "")
        layout = None if buffer.layout is None else self._layout(buffer.layout)
        split = layout is not None and (any(layout.axes) or layout.partial)
        held = split or buffer.storage in self._private
        made = _with(buffer, name=name, layout=layout, mesh=buffer.mesh if held else Mesh())
        self._objects[buffer] = made
        return made

    def _layout(self, layout: ShardLayout) -> ShardLayout:
        """Partial axes are a set: one order for all."""
        if len(layout.partial) < 2:
            return layout
        tags = sorted(layout.partial, key=lambda p: repr(Tag(p[0], P(p[1]))))
        return layout if tuple(tags) == layout.partial else replace(layout, partial=tuple(tags))

    def _barrier(self, barrier: Barrier) -> Barrier:
        made = _with(barrier, name=self._name(barrier.name))
        self._objects[barrier] = made
        return made

    def _counter(self, counter: Counter) -> Counter:
        name = self._name(counter.name)
        if (name, 0, 1) == (counter.name, counter.lo, counter.multiple):
            return counter
        made = Counter(name)
        self._env[counter] = made.expr()
        self._objects[counter] = made
        return made

    # Statements

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Issue():
                reads = self._each(stmt.reads, self._operand)
                writes = self._each(stmt.writes, self._view)
                return _with(stmt, reads=reads, writes=writes, attrs=self._attrs(stmt.attrs))
            case Sync():
                barrier = self._objects.get(stmt.barrier, stmt.barrier)
                return _with(
                    stmt, barrier=barrier, slot=self._dim(stmt.slot), parity=self._dim(stmt.parity)
                )
            case Advance():
                counter = self._objects.get(stmt.counter, stmt.counter)
                return _with(stmt, counter=counter, by=self._dim(stmt.by))
            case When():
                test = self._dim(stmt.test)
                return _with(stmt, test=test, body=self._each(stmt.body, self._stmt))
            case For():
                return self._for(stmt)
            case With():
                return self._with(stmt)

    def _for(self, loop: For) -> For:
        start, stop, step = (self._dim(x) for x in (loop.start, loop.stop, loop.step))
        name = fresh(loop.var.name, self._taken)
        var = loop_variable(name, start, stop, step)
        old = loop.var
        if (var.name, var.lo, var.hi, var.multiple) == (old.name, old.lo, old.hi, old.multiple):
            var = old
        else:
            self._env[old] = var.expr()
        self._taken.add(name)
        body = self._each(loop.body, self._stmt)
        self._taken.remove(name)
        self._env.pop(old, None)
        return _with(loop, var=var, start=start, stop=stop, step=step, body=body)

    def _with(self, scope: With) -> With:
        root, rest = _root(scope.source)
        source = self._roots[root] + rest if root in self._roots else ""
        name = fresh(scope.binding or "scope", self._taken)
        before = self._roots.get(scope.binding)
        self._taken.add(name)
        self._roots[scope.binding or name] = name
        own = _narrowing(self._mesh, scope.own)
        outer, self._mesh = self._mesh, scope.mesh
        body = self._each(scope.body, self._stmt)
        self._mesh = outer
        self._taken.remove(name)
        del self._roots[scope.binding or name]
        if before is not None:
            self._roots[scope.binding] = before
        return _with(scope, own=own, binding=name, source=source, body=body)

    # Operands

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Scalar):
            value = operand.value
            same = not isinstance(value, Expr)
            return operand if same else _with(operand, value=self._dim(value))
        return self._view(operand)

    def _view(self, view: View) -> View:
        buffer = self._objects.get(view.buffer, view.buffer)
        slot = self._dim(view.slot)
        vars, env = view.vars, self._env
        if any(
            (v.name, v.lo, v.hi, v.multiple) != (f"v{n}", 0, max(e - 1, 0), 1)
            or (e == 1 and any(_mentions(x, v) for x in view.index))
            for n, (v, e) in enumerate(zip(view.vars, view.shape, strict=True))
        ):
            vars = fresh_vars(view.shape)
            pairs = zip(view.vars, vars, view.shape, strict=True)
            env = {**env, **{old: new.expr() if e != 1 else 0 for old, new, e in pairs}}
        index = self._each(view.index, lambda x: substitute(x, env) if env else x)
        if buffer is view.buffer and slot is view.slot and vars is view.vars and not env:
            return view
        return View(buffer, view.shape, vars, index, slot, view.fill)

    def _attrs(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        made = {k: self._value(v) for k, v in attrs.items()}
        return attrs if all(made[k] is attrs[k] for k in made) else made

    def _value(self, value: Any) -> Any:
        match value:
            case Expr():
                return self._dim(value)
            case Barrier() | Buffer() | Counter():
                return self._objects.get(value, value)
            case tuple():
                return self._each(value, self._value)  # pyright: ignore[reportUnknownArgumentType]
            case ShardLayout():
                return self._layout(value)
        return value

    def _dim(self, x: Dim) -> Dim:
        return substitute(x, self._env) if self._env else x

    @staticmethod
    def _each(items: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
        made = tuple(change(x) for x in items)
        return items if all(a is b for a, b in zip(made, items, strict=True)) else made


def _with(value: Any, /, **changes: Any) -> Any:
    """The value with changes; itself where nothing differs."""

    def kept(old: Any, new: Any) -> bool:
        # equal layouts may name their partial axes in different orders
        return old is new or (old == new and not isinstance(new, ShardLayout))

    if all(kept(getattr(value, k), v) for k, v in changes.items()):
        return value
    return replace(value, **changes)


def _narrowing(outer: Mesh, own: Mesh) -> Mesh:
    """What a scope changes: its levels from the outermost that is not as around it."""
    levels = list(own.levels)
    while len(levels) > 1 and own.at(levels[0]) == outer.at(levels[0]):
        levels.pop(0)
    if len(levels) == len(own.levels):
        return own
    return Mesh(tuple(a for a in own.axes if a.level in levels), own.sizes)


def _mentions(x: Dim, var: Sym) -> bool:
    return isinstance(x, Expr) and var in symbols(x)


def _root(source: str) -> tuple[str, str]:
    """``threads`` and ``[1:3, :]`` of ``threads[1:3, :]``."""
    root, bracket, rest = source.partition("[")
    return root.strip(), bracket + rest


__all__ = ["WORDS", "fresh", "named", "ring_name"]
