"""A lowered program as a file of ``@prim_func`` methods that parses back to it.

Names, loops and scopes are the author's; buffers of a ring are one tuple of views, each
at its own offset. The author's lines stand in comments behind the statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import basename
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.mesh import Axis
from tilefoundry.lang.spelling import Bound, tuple_text
from tilefoundry.target import TargetRef, record_of
from tilefoundry.tir.forms import AXES, COMMENTED, DECLARATIONS, DEFAULTS, KINDS, SYNCS
from tilefoundry.tir.naming import fresh, named, ring_name
from tilefoundry.tir.placement import Placed, place_buffers
from tilefoundry.tir.program import (
    Advance,
    Buffer,
    For,
    Issue,
    Launch,
    PrimFunc,
    Program,
    Stmt,
    Sync,
    When,
    With,
)
from tilefoundry.tir.spelling import TirPlace

WIDTH = 100
INDENT = "    "


def print_func(func: PrimFunc) -> str:
    """One kernel as a complete file."""
    return print_program(alone(func))


def print_program(program: Program) -> str:
    """``program`` as a complete file."""
    assert program.kernels, "a program has at least one kernel"
    kernels = [named(func) for func in program.kernels.values()]
    first = kernels[0]
    refs = [target_ref(func.target) for func in kernels]
    imported = ", ".join(sorted({type(ref).__name__ for ref in refs}))
    lines = [
        "from tilefoundry.dsl import *",
        f"from tilefoundry.target import {imported}",
        "",
        "",
    ]
    single = len(kernels) == 1
    if single:
        lines += _head(first)
    options = [f'entry="{program.entry}"', f"target={refs[0]!r}"]
    options.append(f"topologies={tuple_text([repr(t) for t in first.topologies])}")
    lines += [*_wrapped("@module", options), f"class {program.name}:"]
    plain = program == _same_steps(program, first)
    for func, ref in zip(kernels, refs, strict=True):
        weights = program.weights if plain else frozenset[str]()
        body = [] if single else _head(func)
        body.append(f"@prim_func(target={ref!r})")
        body += _Writer(func, weights).lines(func.topologies != first.topologies)
        lines += [*_indented(body), ""]
    lines += _indented(_steps(program)) if not plain else []
    return "\n".join(lines).rstrip("\n") + "\n"


def alone(func: PrimFunc, name: str = "Program", weights: frozenset[str] = frozenset()) -> Program:
    """The program of one kernel, from its inputs to its outputs."""
    inputs = tuple(p.name for p in func.params if p.role == "in")
    outputs = tuple(p.name for p in func.params if p.role == "out")
    launch = Launch(func.name, inputs, outputs)
    return Program({func.name: func}, func.name, inputs, (launch,), outputs, weights, name)


def target_ref(target: Any) -> TargetRef:
    """The target as an author names it."""
    if isinstance(target, TargetRef):
        return target
    return record_of(target)


def _same_steps(program: Program, func: PrimFunc) -> Program | None:
    """``program`` if it says no more than its only kernel does."""
    made = alone(func, program.name, program.weights)
    stated = (program.entry, program.inputs, program.launches, program.results)
    derived = (made.entry, made.inputs, made.launches, made.results)
    same = len(program.kernels) == 1 and stated == derived
    return program if same and program.weights <= set(made.inputs) else None


def _steps(program: Program) -> list[str]:
    """The entry as a method that calls the kernels in order."""
    weights = program.weights
    params = [f"{n}: ConstTensor" if n in weights else n for n in program.inputs]
    assert weights <= set(program.inputs), "a weight is an input"
    lines = [f"def {fresh(program.entry, program.kernels)}({', '.join(params)}):"]
    for step in program.launches:
        call = f"{step.kernel}({', '.join(step.inputs)})"
        targets = tuple_text(list(step.outputs))[1:-1]  # ``a,`` unpacks one
        lines.append(INDENT + (f"{targets.rstrip(',')} = {call}" if step.outputs else call))
    results = ", ".join(program.results)
    return [*lines, f"{INDENT}return {results}".rstrip()]


def _head(func: PrimFunc) -> list[str]:
    """What was found out about a kernel, as comments above it."""
    lines = [f"# {note}".rstrip() for note in func.notes]
    for role, need, declared in func.registers:
        given = f" declared={declared}" if declared else ""
        lines.append(f"# registers role={role} estimate={need}{given}")
    return lines


class _Writer:
    """The text of one kernel."""

    def __init__(self, func: PrimFunc, weights: frozenset[str]) -> None:
        self.func = func
        self.weights = weights
        locals = (*func.params, *func.buffers)
        names = {ring_name(b) for b in locals} | {b.name for b in func.barriers}
        self.place = TirPlace(names | {c.name for c in func.counters})
        self.placed: Placed = place_buffers(func)
        self.depth = 1

    def lines(self, states_topologies: bool) -> list[str]:
        """``def`` and its body."""
        func, place = self.func, self.place
        body: list[str] = []
        if states_topologies:
            body += _wrapped("T.topologies", [repr(t) for t in func.topologies])
        if func.shared_bytes:
            body.append(f"T.shared_memory({func.shared_bytes})")
        body += _aligned(func.params)
        for name, mesh in self.placed.meshes.items():
            body.append(f"{name} = {place.mesh(mesh, '')}")
            place.bindings.append(Bound(name, name, mesh, open=False))
        body += self._allocations(None)
        for b in func.barriers:
            words = [str(b.offset), f"count={b.count}"] + [f"slots={b.slots}"] * (b.slots != 1)
            body.append(f"{b.name} = T.mbarrier({', '.join(words)})")
        body += [f"{c.name} = T.counter()" for c in func.counters]
        body += self._block(func.body)
        params = [self._param(p) for p in func.params]
        outputs = [p.role for p in func.params].count("out")
        if outputs:
            params.insert(len(params) - outputs, "*")
        head = _wrapped(f"def {func.name}", params, ":" + _comment("", func.span), 1)
        return [*head, *_indented(body or ["pass"])]

    def _param(self, p: Buffer) -> str:
        assert p.role in ("in", "out") and p.slots == 1, f"{p} is no parameter"
        form = "ConstTensor" if p.name in self.weights else "Tensor"
        return f"{p.name}: {self.place.type(p.type, form)}"

    # Buffers

    def _allocations(self, scope: With | None) -> list[str]:
        """The buffers that stand at the head of a scope's body."""
        lines: list[str] = []
        buffers = self.placed.at.pop(scope, ())  # once, where statements are shared
        for b in buffers:
            note = _comment("", b.span)
            if b.offsets:
                assert len(b.offsets) == b.slots, b
                made = [self._tensor_view(b, offset) for offset in b.offsets]
                if b.slots == 1:
                    lines.append(f"{b.name} = {made[0]}{note}")
                else:
                    inner = _indented([f"{view}," for view in made])
                    lines += [f"{ring_name(b)} = (", *inner, f"){note}"]
            else:
                lines.append(f"{ring_name(b)} = {self._alloc(b, scope)}{note}")
        return lines + _aligned(buffers)

    def _tensor_view(self, b: Buffer, offset: int) -> str:
        words = [str(offset), f'dtype="{b.dtype}"', f'storage="{b.storage}"']
        if b.layout is not None:
            words.append(f"layout={self.place.layout(b.layout)}")
        words += [f"shape={self.place.value(b.shape)}", *self._more(b)]
        words += [f"mesh={self.placed.mesh_of[b]}"] if b.mesh.axes else []
        return f"T.tensor_view({', '.join(words)})"

    def _alloc(self, b: Buffer, scope: With | None) -> str:
        words = [self.place.value(b.shape), f'dtype="{b.dtype}"', f'storage="{b.storage}"']
        if b.layout is not None:
            words.append(f"layout={self.place.layout(b.layout)}")
        words += self._more(b)
        if b.slots != 1:
            words.append(f"slots={b.slots}")
        here: tuple[Axis, ...] = scope.mesh.axes if scope is not None else ()
        if b.mesh.axes != here:
            words.append(f"mesh={self.placed.mesh_of[b] if b.mesh.axes else None}")
        return f"T.alloc_tensor({', '.join(words)})"

    def _more(self, b: Buffer) -> Iterator[str]:
        if b.role != ("work" if b.storage == "gmem" else "local"):
            yield f'role="{b.role}"'
        if b.registers is not None:
            yield f"registers={self.place.value(b.registers)}"

    # Statements

    def _block(self, body: Sequence[Stmt]) -> list[str]:
        self.depth += 1
        lines = [line for stmt in body for line in self._stmt(stmt)]
        self.depth -= 1
        return lines

    def _stmt(self, stmt: Stmt) -> list[str]:
        place = self.place
        match stmt:
            case Issue():
                return self._issue(stmt)
            case Sync():
                return self._sync(stmt)
            case Advance():
                return [f"{stmt.counter.name} += {place.dim(stmt.by)}"]
            case When():
                head = f"if {place.grouped(stmt.test)} > 0:"
                return [head, *_indented(self._block(stmt.body) or ["pass"])]
            case For():
                span = _range(place, stmt)
                head = f"for {stmt.var.name} in {span}:{_comment('', stmt.span)}"
                with place.loop(stmt):
                    return [head, *_indented(self._block(stmt.body) or ["pass"])]
            case With():
                mesh = place.mesh(stmt.own, stmt.source)
                head = f"with {mesh} as {stmt.binding}:{_comment('', stmt.span)}"
                with place.scope(stmt):
                    body = [*self._allocations(stmt), *self._block(stmt.body)]
                return [head, *_indented(body or ["pass"])]

    def _issue(self, issue: Issue) -> list[str]:
        assert issue.instr not in KINDS and issue.instr not in DECLARATIONS, issue.instr
        default = issue.writes[0].dtype if issue.writes else None
        words = [self.place.operand(x, default) for x in issue.reads]
        made = [self.place.view(x) for x in issue.writes]
        words += made if len(made) == 1 else [tuple_text(made)]
        words += self.place.attrs(issue.instr, issue.attrs)
        tail = _comment(issue.source, issue.span)
        return _wrapped(f"T.{issue.instr}", words, tail, self.depth)

    def _sync(self, sync: Sync) -> list[str]:
        form, words = SYNCS[sync.kind], list[str]()
        if form.first == "barrier":
            assert sync.barrier is not None, sync
            words.append(self.place.barrier(sync.barrier, sync.slot, sync.kind == "init"))
        elif form.first:
            words.append(self.place.value(getattr(sync, form.first)))
        skipped = (form.first, *COMMENTED, *(("slot",) if form.first == "barrier" else ()))
        for name, default in DEFAULTS.items():
            value = getattr(sync, name)
            if name not in skipped and (name in form.stated or value != default):
                text = self.place.axes(value) if name in AXES else self.place.value(value)
                words.append(f"{name}={text}")
        return _wrapped(f"T.{form.call}", words, _comment(sync.why, sync.span), self.depth)


def _aligned(buffers: Iterable[Buffer]) -> list[str]:
    """The alignment in bytes of the buffers that have an unusual one."""
    by_size: dict[int, list[str]] = {}
    for b in buffers:
        if b.align != Buffer.align:
            by_size.setdefault(b.align, []).append(ring_name(b))
    return [f"T.align({size}, {', '.join(names)})" for size, names in by_size.items()]


def _range(place: TirPlace, loop: For) -> str:
    ends = [place.dim(x) for x in (loop.start, loop.stop, loop.step)]
    if loop.step == 1:
        ends.pop()
    text = f"range({', '.join(ends)})"
    return f"T.unroll({text})" if loop.unroll else text


def _comment(text: str, span: Span | None) -> str:
    """``  # lhs_ring filled (optimal.py:31)``."""
    if span is None:
        return f"  # {text}" if text else ""
    where = f"{basename(span.file)}:{span.line}"
    return f"  # {text} ({where})" if text else f"  # {where}"


def _wrapped(call: str, words: Sequence[str], tail: str = "", depth: int = 0) -> list[str]:
    """A call on one line, or with one argument a line where that is too long."""
    text = f"{call}({', '.join(words)})"
    if len(text) <= WIDTH - depth * len(INDENT) or not words:
        return [text + tail]
    return [f"{call}(", *_indented([f"{w}," if w != "*" else "*," for w in words]), f"){tail}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line if line else "" for line in lines]


__all__ = ["alone", "print_func", "print_program", "target_ref"]
