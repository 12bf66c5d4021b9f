"""A program as one C file: its kernels, and an entry that launches them in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tilefoundry.emit.c import elementwise, moves, reduce
from tilefoundry.emit.c.called import text_of, writer
from tilefoundry.emit.c.files import RegisterFile
from tilefoundry.emit.c.kernel import Kernel
from tilefoundry.emit.c.text import c_type
from tilefoundry.emit.source import Argument, Source
from tilefoundry.emit.values import arguments_of, authors, values_of
from tilefoundry.emit.writer import Writer
from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.target import Target
from tilefoundry.tir.program import Buffer, Issue, Launch, PrimFunc, Program, walk

HEADER = Path(__file__).parent / "rt" / "tf_c.h"
PIN = HEADER.with_name("tf_pin.h")
ALIGN = 64
"""Bytes that each value in the workspace is aligned to: a cache line."""
EMITTERS = {**elementwise.EMITTERS, **moves.EMITTERS, **reduce.EMITTERS}
"""Of the instructions that all targets have."""


@dataclass(frozen=True)
class Machine:
    """What a family adds to C for cores: headers, included behind ours; compiler options by
    the capability of an architecture (none applies: those of the machine that compiles);
    register files."""

    headers: tuple[Path, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    files: tuple[RegisterFile, ...] = ()


def emit_program(program: Program, machine: Machine) -> Source:
    """The C of a program, one kernel at least."""
    out = Writer(own=("tf_", "TF_", "_", "omp_", "M_", "NAN", "INF"))
    kernels: dict[str, Kernel] = {}
    target = next(iter(program.kernels.values())).target
    sources = authors(program)
    out.note(f"{program.name}, emitted by TileFoundry for {target.id}.")
    headers = (HEADER, PIN, *machine.headers)
    for func in program.kernels.values():
        write = partial(writer, func.target)
        settling = [text.settle for text in _texts(func) if text.settle]
        kernels[func.name] = Kernel(
            func, out, sources, write, machine.files, tuple(dict.fromkeys(settling))
        )
    out.line(f"#define TF_LANES {next(iter(kernels.values())).lanes}")
    for header in headers:
        out.line(f'#include "{header.name}"')
    _definitions(out, program)
    for kernel in kernels.values():
        out.names = set(RESERVED)
        out.line()
        kernel.write()
    values = values_of(program)
    entry = f"{program.entry}_run"
    places, total = _workspace(program, kernels, values)
    arguments = arguments_of(program, values)
    _entry(out, program, kernels, values, places, entry, arguments)
    texts = {h.name: h.read_text(encoding="utf-8") for h in headers}
    return Source(
        program.entry,
        target.family,
        {f"{program.entry}.c": out.mapped(), **texts},
        {f"{program.entry}.c": out.text(), **texts},
        entry,
        arguments,
        total,
        _options(target, machine),
        tuple(_facts(k) for k in kernels.values()),
    )


def _texts(func: PrimFunc) -> Iterator[CText]:
    """What contracts have C say, of each issue that one speaks for."""
    issues = (stmt for stmt, _ in walk(func.body) if isinstance(stmt, Issue))
    return filter(None, map(text_of, issues))


def _definitions(out: Writer, program: Program) -> None:
    """What the contracts of the instructions used define, each text once."""
    texts = (text.code for func in program.kernels.values() for text in _texts(func))
    for code in dict.fromkeys(filter(None, texts)):
        out.line()
        for line in code.strip("\n").splitlines():
            out.line(line)


RESERVED = frozenset([
    "core_id", "all", "l", "work", "threads", "cores", "count", "team",
    "int", "long", "short", "char", "float",
    "double", "for", "if", "else", "while", "do", "switch", "case", "default", "break", "continue",
    "return", "goto", "static", "inline", "const", "volatile", "register", "auto", "extern",
    "struct", "union", "enum", "typedef", "sizeof", "void", "signed", "unsigned", "restrict",
    "main", "exp", "log", "pow", "sin", "cos", "tanh", "erf", "sqrt", "floor", "ceil", "round",
    "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b8", "exp2", "log2", "abs",
    "div", "rint", "y0", "y1", "j0", "j1", "yn", "jn", "gamma", "index", "signbit",
])  # fmt: skip
"""Names that mean something in C or in the header."""


def _workspace(
    program: Program, kernels: dict[str, Kernel], values: dict[str, Buffer]
) -> tuple[dict[object, int], int]:
    """Byte offsets of values between kernels and of the kernels' own device memory."""
    out: dict[object, int] = {}
    at = 0
    sizes: list[tuple[object, int]] = [
        (name, slot_bytes(b))
        for name, b in values.items()
        if name not in program.inputs and name not in program.results
    ]
    sizes += [(b, size) for k in kernels.values() for b, size in k.work]
    for key, size in sizes:
        out[key] = at
        at += -(-size // ALIGN) * ALIGN
    return out, at


def _entry(
    out: Writer, program: Program, kernels: dict[str, Kernel], values: dict[str, Buffer],
    places: dict[object, int], entry: str, arguments: Sequence[Argument],
) -> None:  # fmt: skip
    """Takes the program's tensors, a workspace and the number of threads (0: all there are);
    0 if it ran, 1 if cores that wait for one another got no thread each, 2 if a tensor lies
    where its instructions cannot reach it."""
    out.names = set(RESERVED)
    out.span = None
    words: dict[str, str] = {}
    params: list[str] = []
    for name in (*program.inputs, *program.results):
        const = "const " if name in program.inputs else ""
        words[name] = out.name(name)
        params.append(f"{const}{c_type(values[name].dtype)} *{words[name]}")
    out.line()
    with out.block(f"int {entry}({', '.join(params)}, char *work, int threads)"):
        out.line("(void)work;")
        for a in arguments:
            if a.align > 1:
                out.line(f"if ((uintptr_t){words[a.name]} % {a.align}) return 2;")
        out.line("int all = threads > 0 ? threads : omp_get_max_threads();")
        for launch in program.launches:
            _launch(out, launch, kernels[launch.kernel], values, words, places)
        out.line("(void)all;")
        out.line("return 0;")


def _launch(
    out: Writer, launch: Launch, kernel: Kernel, values: dict[str, Buffer],
    words: dict[str, str], places: dict[object, int],
) -> None:  # fmt: skip
    args = [
        words[n] if n in words else f"({c_type(values[n].dtype)} *)(work + {places[n]})"
        for n in (*launch.inputs, *launch.outputs)
    ]
    args += [f"({c_type(b.dtype)} *)(work + {places[b]})" for b, _ in kernel.work]
    name, cores = kernel.func.name, kernel.cores
    call = f"{name}_core(core, {', '.join(args)});"
    if cores == 1:
        out.line(call.replace("(core,", "(0,"))
        return
    if not kernel.meets:
        with out.block(""):
            out.line(f"int count = all < {cores} ? all : {cores};")
            out.line("tf_team team = tf_team_of(count);")
            out.line("#pragma omp parallel num_threads(count) if(count > 1)")
            with out.block(""):
                out.line("tf_pin(team, omp_get_thread_num());")
                out.line("#pragma omp for schedule(static, 1) nowait")
                out.line(f"for (long core = 0; core < {cores}; core++)")
                out.line(f"    {call}")
        return
    out.note("These cores wait for one another: each needs a thread.")
    with out.block(""):
        out.line("int given = 0;")
        out.line(f"tf_team team = tf_team_of({cores});")
        out.line(f"#pragma omp parallel num_threads({cores})")
        with out.block(""):
            out.line("tf_pin(team, omp_get_thread_num());")
            out.line("#pragma omp single")
            out.line("given = omp_get_num_threads();")
            with out.block(f"if (given == {cores})"):
                out.line("long core = omp_get_thread_num();")
                out.line(call)
        out.line(f"if (given != {cores}) return 1;")


def _options(target: Target, machine: Machine) -> tuple[str, ...]:
    known = machine.options
    return tuple(known[n] for n in target.capabilities if n in known) or ("-march=native",)


def _facts(kernel: Kernel) -> dict[str, object]:
    """What a reader asks of a kernel: threads, lanes of a vector, bytes of workspace."""
    return {
        "kernel": kernel.func.name,
        "cores": kernel.cores,
        "lanes": kernel.lanes,
        "workspace": sum(size for _, size in kernel.work),
    }


__all__ = ["EMITTERS", "Machine", "RegisterFile", "emit_program"]
