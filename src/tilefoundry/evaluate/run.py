"""Running a function: statements in order, units in lock-step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from tilefoundry.diag import Refusal, refuse
from tilefoundry.evaluate import stack
from tilefoundry.evaluate.bind import bind_dims, check_input
from tilefoundry.evaluate.frame import ANY
from tilefoundry.evaluate.independent import Independent, Steps
from tilefoundry.evaluate.lanes import ALL, Enumeration, Lanes, Units, join, uniform
from tilefoundry.evaluate.liveness import last_uses
from tilefoundry.evaluate.trips import Trips
from tilefoundry.ir.expr import Sym
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.node import Block, Carried, Loop, Node, Return, Scope, nodes
from tilefoundry.ir.program import Func, Module
from tilefoundry.lang.parse import module_context


class Evaluator:
    """Evaluates the functions of one module on one device."""

    def __init__(self, module: Module, device: str) -> None:
        self.module = module
        self.device = device
        self.context = module_context(module)
        self.enumeration = Enumeration()
        self.in_turn = False
        """Every trip of every loop by itself, in the order of the program."""
        self.batched = False
        """Trips of some loop were evaluated together."""

    def call(
        self,
        func: Func,
        inputs: list[Any],
        weights: Mapping[str, Any],
        dims: Mapping[Sym, int] | None = None,
    ) -> tuple[Any, ...]:
        """One function on whole tensors.

        What is refused while trips are evaluated together may not be what the program comes to
        first: then they are evaluated in turn.
        """
        try:
            return self.run(func, inputs, weights, dims)
        except Refusal:
            if self.in_turn or not self.batched:
                raise
        self.in_turn = True
        try:
            return self.run(func, inputs, weights, dims)
        finally:
            self.in_turn = False

    def run(
        self,
        func: Func,
        inputs: list[Any],
        weights: Mapping[str, Any],
        dims: Mapping[Sym, int] | None = None,
    ) -> tuple[Any, ...]:
        """:meth:`call` where another one is running."""
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
        here = torch.device(self.device)
        # as a context it slows every torch function, so only where it changes something
        made = nullcontext() if here == torch.get_default_device() else here
        with torch.no_grad(), made:
            return frame.run()

    def _variant(self, func: Func, dims: Mapping[Sym, int]) -> Func:
        by_name = {s.name: v for s, v in dims.items()}
        for variant in func.variants:
            if variant.lo <= by_name[variant.dim] <= variant.hi:
                return self._variant(variant.func, dims)
        return func


class Run(Independent):
    """One execution of one function."""

    def __init__(
        self, owner: Evaluator, func: Func, dims: Mapping[Sym, int], weights: Mapping[str, Any]
    ) -> None:
        super().__init__(owner, func, dims, weights)
        self._last = last_uses(func)

    def run(self) -> tuple[Any, ...]:
        returned = self.block(self.func.body)
        assert returned is not None, self.func.name
        out: list[Any] = []
        for value in returned.values:
            lanes = self.values[value]
            assert lanes.units is ALL, f"{value} differs between units"  # check.vary refuses it
            out.append(lanes.value)
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

    def loop(self, loop: Loop) -> None:
        """All trips; units whose trips are over keep their values."""
        for c in loop.carried:
            init = self.values[c.init]
            if c in self.chains.copied:
                owner = None if init.owner is None else init.owner.clone()
                init = replace(init, value=stack.copied(init.value), owner=owner)
            self.values[c.head] = init
        bounds = [self.index(x, loop.span) for x in (loop.start, loop.stop, loop.step)]
        axes = join(b.axes for b in bounds)
        mesh = _mesh_of(loop)
        every = self.executing(axes, mesh)
        start, stop, step = (_of(b, every) for b in bounds)
        assert len(every), loop
        trips = np.maximum(0, -((start - stop) // step))
        units = tuple(a for a in axes if not isinstance(a, Trips))
        run = Steps(loop, axes, units, every, start, step, trips)
        size = self.together(run)
        uneven = size == 1 and bool(units) and bool(trips.min() != trips.max())
        running = every
        for j in range(0, int(trips.max()), size):
            runs = trips > j
            if runs.sum() < len(running):
                running = self.owner.enumeration.keep(axes, every.table[runs])
            at = (start + j * step)[runs]
            if size > 1:
                self._enter(run, j, size)
            else:
                self.symbols[loop.var] = Lanes(running, at) if axes else uniform(int(at[0]))
                if axes:
                    self.active.append(running)
            before = {c: self.values[c.head] for c in loop.carried}
            if uneven:
                # units of a level that are not in step have no order between any of them
                apart = {a.level for a in units}
                self.uneven.append(join([units, tuple(a for a in mesh.axes if a.level in apart)]))
                for c in loop.carried:
                    self._own(c, before[c], units)
            self.block(loop.body)
            if uneven:
                self.uneven.pop()
            # a step may be another's head, so that all steps are read before a head changes
            steps = {c: self.values[c.step] for c in loop.carried}
            for c, after in steps.items():
                in_place = c in self.chains.through and self.shared(c.head, axes)
                if running is not every and not in_place:
                    after = self._mix(before[c], after, running)
                self.values[c.head] = after
            if axes or size > 1:
                self.active.pop()
        for c in loop.carried:
            final = self.values[c.head]
            self.values[c.result] = replace(final, owner=None) if not self.active else final

    def _enter(self, run: Steps, first: int, size: int) -> None:
        """``size`` trips from the ``first`` on, as an axis of the values that they differ in."""
        held, trip = run.rows(first, size)
        axis = self.trips_axis(run.loop, size)
        axes = join([run.axes, (axis,)])
        columns = [trip if a is axis else run.every.column(a)[held] for a in axes]
        units = self.owner.enumeration.keep(axes, np.stack(columns, axis=1))
        at = run.start[held] + (first + trip) * run.step[held]
        self.symbols[run.loop.var] = Lanes(units, at)
        self.active.append(units)

    def _own(self, c: Carried, value: Lanes, axes: tuple[Axis, ...]) -> None:
        """Track who writes a shared destination while units' trips differ."""
        import torch

        if value.owner is None and value.units is ALL and self.shared(c.head, axes):
            value.owner = torch.zeros(value.value.shape, dtype=torch.int32)

    def _mix(self, before: Lanes, after: Lanes, running: Units) -> Lanes:
        """Units that run take the new value, the others keep the old one."""
        wide = join([before.axes, after.axes, running.axes])
        units = self.owner.enumeration.units(wide, ANY)
        runs = units.find(running) >= 0
        old, new = units.find(before.units), units.find(after.units)
        known = np.where(runs, new, old) >= 0
        if not known.all():
            units = self.owner.enumeration.keep(wide, units.table[known])
            runs, old, new = runs[known], old[known], new[known]
        pieces = [
            ((~runs).nonzero()[0], stack.rows(before, old[~runs], self.owner.device)),
            (runs.nonzero()[0], stack.rows(after, new[runs], self.owner.device)),
        ]
        return Lanes(units, stack.assemble(len(units), [p for p in pieces if len(p[0])]))


def _of(bound: Lanes, units: Units) -> np.ndarray:
    """A loop's bound for every one of ``units``."""
    places = None if bound.units is ALL else units.places(bound.units)
    if bound.units is ALL:
        return np.full(len(units), bound.value, np.int64)
    return bound.value if places is None else bound.value[places]


def _mesh_of(loop: Loop) -> Mesh:
    """The units in force around a loop's body."""
    first = next(iter(nodes(loop.body)), None)
    return first.mesh if first is not None else ANY
