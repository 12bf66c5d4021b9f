"""A program as one C file: its kernels, and an entry that launches them in order."""

from __future__ import annotations

from math import prod
from pathlib import Path

from tilefoundry.emit.source import Source
from tilefoundry.emit.values import arguments_of, authors, values_of
from tilefoundry.emit.writer import Writer
from tilefoundry.targets.cpu.emit.kernel import Kernel
from tilefoundry.targets.cpu.emit.text import c_type
from tilefoundry.tir.program import Buffer, Launch, Program

HEADERS = tuple(Path(__file__).parents[1] / "rt" / n for n in ("tf_cpu.h", "tf_matrix.h"))
ALIGN = 64
"""Bytes that each value in the workspace is aligned to: a cache line."""
FEATURES = {
    "avx": "-mavx", "avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c", "avx512f": "-mavx512f",
    "avx512bw": "-mavx512bw", "avx512dq": "-mavx512dq", "avx512vl": "-mavx512vl",
    "avx512_vnni": "-mavx512vnni", "avx512_bf16": "-mavx512bf16", "avx512_fp16": "-mavx512fp16",
    "amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16", "amx_int8": "-mamx-int8",
    "avx_vnni": "-mavxvnni",
}  # fmt: skip
"""Compiler options by the capability of an architecture."""


def emit_program(program: Program, headers: tuple[Path, ...] = HEADERS) -> Source:
    """The C of a program, one kernel at least; it includes ``headers``."""
    out = Writer(own=("tf_", "TF_", "_", "omp_", "M_", "NAN", "INF"))
    kernels: dict[str, Kernel] = {}
    first = next(iter(program.kernels.values()))
    sources = authors(program)
    lanes = {k.name: Kernel(k, out, sources).lanes for k in program.kernels.values()}
    width = next(iter(lanes.values()))
    out.note(f"{program.name}, emitted by TileFoundry for {first.target.id}.")
    out.line(f"#define TF_LANES {width}")
    for header in headers:
        out.line(f'#include "{header.name}"')
    for func in program.kernels.values():
        kernel = kernels[func.name] = Kernel(func, out, sources)
        out.names = set(RESERVED)
        out.line()
        kernel.write()
    values = values_of(program)
    entry = f"{program.entry}_run"
    places, total = _workspace(program, kernels, values)
    _entry(out, program, kernels, values, places, entry)
    texts = {h.name: h.read_text(encoding="utf-8") for h in headers}
    return Source(
        program.entry,
        first.target.family,
        {f"{program.entry}.c": out.mapped(), **texts},
        {f"{program.entry}.c": out.text(), **texts},
        entry,
        arguments_of(program, values),
        total,
        _flags(first.target),
        tuple(_facts(k) for k in kernels.values()),
    )


RESERVED = frozenset([
    "core_id", "all", "l", "work", "threads", "cores", "int", "long", "short", "char", "float",
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
        (name, -(-prod(b.shape) * b.dtype.bits // 8))
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
    places: dict[object, int], entry: str,
) -> None:  # fmt: skip
    """Takes the program's tensors, a workspace and the number of threads (0: all there are);
    0 if it ran, 1 if cores that wait for one another got no thread each."""
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
        out.line(f"#pragma omp parallel for schedule(static, 1) num_threads(all < {cores} ? all : "
                 f"{cores}) if(all > 1)")  # fmt: skip
        out.line(f"for (long core = 0; core < {cores}; core++)")
        out.line(f"    {call}")
        return
    out.note("These cores wait for one another: each needs a thread.")
    with out.block(""):
        out.line("int given = 0;")
        out.line(f"#pragma omp parallel num_threads({cores})")
        with out.block(""):
            out.line("#pragma omp single")
            out.line("given = omp_get_num_threads();")
            with out.block(f"if (given == {cores})"):
                out.line("long core = omp_get_thread_num();")
                out.line(call)
        out.line(f"if (given != {cores}) return 1;")


def _flags(target: object) -> tuple[str, ...]:
    names: tuple[str, ...] = target.capabilities  # type: ignore[attr-defined]
    found = tuple(FEATURES[n] for n in names if n in FEATURES)
    return found if "x86_64" in names else ("-march=native",)


def _facts(kernel: Kernel) -> dict[str, object]:
    """What a reader asks of a kernel: threads, lanes of a vector, bytes of workspace."""
    return {
        "kernel": kernel.func.name,
        "cores": kernel.cores,
        "lanes": kernel.lanes,
        "workspace": sum(size for _, size in kernel.work),
    }
