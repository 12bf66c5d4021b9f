"""HIR to TIR: selection, in-place bufferisation, synchronisation, allocation."""

from __future__ import annotations

from tilefoundry.diag import refuse
from tilefoundry.ir.node import CALL, ITEM, Node, Return, walk
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TupleType
from tilefoundry.targets.target import Target
from tilefoundry.tir.program import Launch, PrimFunc, Program


def lower(module: Module, func: str = "") -> Program:
    """``func`` of ``module`` (its entry if empty) as kernels and the steps that launch them.

    A function that calls others only launches them, in its order; any other is one kernel.
    """
    if module.target is None:
        refuse("lower-no-target", module.span, module=module.name)
    target: Target = module.target.load()
    entry = module.funcs[func or module.entry]
    calls = [s for s in walk(entry.body) if isinstance(s, Node) and s.op is CALL]
    weights = frozenset(entry.weights)
    inputs = tuple(p.name for p in entry.params)
    if calls:
        return _Host(module, entry, target).program(inputs, weights)
    kernel = kernel_of(module, entry, target)
    results = tuple(b.name for b in kernel.params if b.role == "out")
    launch = Launch(entry.name, inputs, results)
    return Program({entry.name: kernel}, entry.name, inputs, (launch,), results, weights,
                   module.name)  # fmt: skip


def kernel_of(module: Module, func: Func, target: Target) -> PrimFunc:
    """One function, lowered, synchronised and placed."""
    from tilefoundry.lower.allocate import allocate, place_barriers
    from tilefoundry.lower.func import lower_func
    from tilefoundry.lower.registers import divide, estimate
    from tilefoundry.lower.sync import synchronise

    kernel = allocate(lower_func(module, func, target))
    return divide(place_barriers(synchronise(kernel)), estimate(kernel))


class _Host:
    """A function that only launches others."""

    def __init__(self, module: Module, func: Func, target: Target) -> None:
        self.module = module
        self.func = func
        self.target = target
        self.names: dict[Node, str] = {p: p.name for p in func.params}
        self.items: dict[Node, tuple[str, ...]] = {}
        self.kernels: dict[str, PrimFunc] = {}
        self.launches: list[Launch] = []
        self.results: tuple[str, ...] = ()

    def program(self, inputs: tuple[str, ...], weights: frozenset[str]) -> Program:
        for stmt in self.func.body.stmts:
            self._step(stmt)
        return Program(self.kernels, self.func.name, inputs, tuple(self.launches), self.results,
                       weights, self.module.name)  # fmt: skip

    def _step(self, stmt: object) -> None:
        if isinstance(stmt, Return):
            self.results = tuple(self.names[v] for v in stmt.values)
        elif isinstance(stmt, Node) and stmt.op is CALL:
            self._launch(stmt)
        elif isinstance(stmt, Node) and stmt.op is ITEM:
            self.names[stmt] = self.items[stmt.args[0]][stmt.attrs["index"]]  # type: ignore[index]
        elif isinstance(stmt, Node) and stmt.op.name == "reshard" and stmt.span == _end(self.func):
            self.names[stmt] = self.names[stmt.args[0]]  # what is returned is in device memory
        else:
            span = getattr(stmt, "span", None)
            refuse("lower-host", span, func=self.func.name)

    def _launch(self, call: Node) -> None:
        callee = self.module.funcs[str(call.attrs["func"])]
        if callee.name not in self.kernels:
            self.kernels[callee.name] = kernel_of(self.module, callee, self.target)
        names: tuple[str, ...] = call.attrs["names"]  # type: ignore[assignment]
        given = dict(zip(names, (self.names[a] for a in call.args), strict=True))
        inputs = tuple(given.get(p.name, p.name) for p in callee.params)
        count = len(call.type.items) if isinstance(call.type, TupleType) else 1
        taken = {*self.names.values(), *(n for made in self.items.values() for n in made)}
        outputs: list[str] = []
        for n in range(count):
            stem = f"{callee.name}_{n}" if count > 1 else (call.name or callee.name)
            name, k = stem, 2
            while name in taken:
                name, k = f"{stem}_{k}", k + 1
            taken.add(name)
            outputs.append(name)
        self.launches.append(Launch(callee.name, inputs, tuple(outputs)))
        self.names[call] = outputs[0]
        self.items[call] = tuple(outputs)


def _end(func: Func) -> object:
    return func.returns.span


__all__ = ["kernel_of", "lower"]
