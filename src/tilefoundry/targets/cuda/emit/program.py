"""A program as one CUDA file, and what its loader must know: parameters, maps, launches."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.emit.source import Argument, Source
from tilefoundry.emit.values import arguments_of, authors, values_of
from tilefoundry.emit.writer import Writer
from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.launches import LaunchPlan, MapPlan
from tilefoundry.targets.cuda.emit.places import MapUse
from tilefoundry.tir.program import Buffer, Launch, Program

HEADER = Path(__file__).parents[1] / "rt" / "tf_cuda.cuh"
ALIGN = 256
"""Bytes that each value in the workspace is aligned to."""


def emit_program(program: Program) -> Source:
    """The CUDA of a program; one kernel at least."""
    out = Writer()
    first = next(iter(program.kernels.values()))
    sources = authors(program)
    out.line(f"// {program.name}, emitted by TileFoundry for {first.target.id}.")
    out.line(f'#include "{HEADER.name}"')
    kernels: dict[str, Kernel] = {}
    written: dict[str, tuple[str, ...]] = {}
    for func in program.kernels.values():
        out.names = set(RESERVED)
        kernel = kernels[func.name] = Kernel(func, out, sources)
        kernel.functions = written
        known, mark = set(written), len(out.lines)
        kernel.write()
        fresh = [("", None)]
        for name in (n for n in written if n not in known):
            fresh += [*((line, None) for line in written[name]), ("", None)]
        out.lines[mark:mark] = fresh
    values = values_of(program)
    places, total = _workspace(program, kernels, values)
    name = f"{program.entry}.cu"
    header = {HEADER.name: HEADER.read_text(encoding="utf-8")}
    return Source(
        program.entry,
        first.target.family,
        {name: out.mapped(), **header},
        {name: out.text(), **header},
        program.entry,
        arguments_of(program, values),
        total,
        (),
        tuple(_facts(k) for k in kernels.values()),
        tuple(_launch(program, x, kernels[x.kernel], places).row() for x in program.launches),
    )


RESERVED = frozenset([
    "tid", "warp", "smem", "shared", "i", "n", "int", "long", "short", "char", "float", "double",
    "bool", "for", "if", "else", "while", "do", "switch", "case", "default", "break", "continue",
    "return", "goto", "static", "inline", "const", "volatile", "register", "auto", "extern",
    "struct", "union", "enum", "typedef", "sizeof", "void", "signed", "unsigned", "class",
    "template", "this", "new", "delete", "true", "false", "operator", "namespace", "using",
    "public", "private", "try", "catch", "throw", "and", "or", "not", "xor", "half", "min", "max",
    "abs", "exp", "log", "pow", "sin", "cos", "main", "asm", "typename", "explicit", "export",
    "friend", "mutable", "virtual", "y0", "y1", "j0", "j1", "yn", "jn", "threadIdx", "blockIdx",
])  # fmt: skip
"""Names that mean something in CUDA C++ or in what is written around."""


def _workspace(
    program: Program, kernels: dict[str, Kernel], values: dict[str, Buffer]
) -> tuple[dict[object, int], int]:
    """Byte offsets of values between kernels and of the kernels' own device memory."""
    sizes: list[tuple[object, int]] = [
        (name, slot_bytes(b))
        for name, b in values.items()
        if name not in program.inputs and name not in program.results
    ]
    sizes += [(b, size) for k in kernels.values() for b, size in k.work]
    out: dict[object, int] = {}
    at = 0
    for key, size in sizes:
        out[key] = at
        at += -(-size // ALIGN) * ALIGN
    return out, at


def _launch(
    program: Program, launch: Launch, kernel: Kernel, places: dict[object, int]
) -> LaunchPlan:
    """A kernel's launch: where each of its parameters comes from."""
    names = (*launch.inputs, *launch.outputs)
    known = {n: i for i, n in enumerate((*program.inputs, *program.results))}
    where: dict[Buffer, tuple[str, int]] = {}
    pointers: list[tuple[str, int]] = []
    for name, param in zip(names, kernel.func.params, strict=True):
        source = ("argument", known[name]) if name in known else ("work", places[name])
        where[param] = source
        pointers.append(source)
    pointers += [("work", places[b]) for b, _ in kernel.work]
    maps = tuple(_map(m, where[m.buffer]) for m in kernel.maps.values())
    return LaunchPlan(
        kernel.func.name, kernel.grid, kernel.threads, kernel.func.shared_bytes,
        kernel.meets, kernel.cluster, kernel.overlaps, tuple(pointers), maps,
    )  # fmt: skip


def _map(use: MapUse, source: tuple[str, int]) -> MapPlan:
    plan = use.plan
    return MapPlan(
        source, use.buffer.dtype.name, tuple(int(d) for d in plan.dims),  # type: ignore[arg-type]
        tuple(int(s) for s in plan.strides_bytes), plan.box, plan.swizzle,  # type: ignore[arg-type]
    )  # fmt: skip


def _facts(kernel: Kernel) -> dict[str, object]:
    """What a reader asks of a kernel."""
    func = kernel.func
    roles = " ".join(f"{who}={declared or most}" for who, most, declared in func.registers)
    return {
        "kernel": func.name,
        "grid": kernel.grid,
        "threads": kernel.threads,
        **({"cluster": kernel.cluster} if kernel.cluster > 1 else {}),
        "shared_bytes": func.shared_bytes,
        "estimate": roles,
        "workspace": sum(size for _, size in kernel.work),
    }


__all__ = ["Argument", "emit_program"]
