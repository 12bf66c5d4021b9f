"""A built program as files that need nothing of ours: C, a header, a loader in Python."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from tilefoundry.build import Built
from tilefoundry.build.compiler import LIBRARIES, OPTIONS
from tilefoundry.diag import refuse
from tilefoundry.emit.source import WORK_ALIGN, Argument, Source
from tilefoundry.emit.writer import Writer

C_TYPES = {"f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t",
           "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t"}  # fmt: skip
KEYWORDS = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while", "work", "threads",
])  # fmt: skip
"""Of C, and the entry's own parameters."""
LOADER = frozenset([
    "HERE", "LIBRARY", "OPTIONS", "RUN", "SOURCE", "TypeError", "RuntimeError", "_pointer",
    "answer", "ctypes", "os", "start", "subprocess", "threads", "torch", "work",
])  # fmt: skip
"""What the loader in Python names itself."""


def export(built: Built, folder: str) -> tuple[Path, ...]:
    """Writes the files into ``folder`` and names them."""
    source = built.source
    files = dict(source.readable)
    files[f"{source.name}.h"] = _header(built)
    files[f"{source.name}.py"] = _loader(built)
    return put(folder, files, built.library, _library(built), headers_of(source))


MARK = "emitted by TileFoundry"
"""In the first lines of a file that an export wrote, so that the next one may replace it."""


def headers_of(source: Source) -> frozenset[str]:
    """The runtime's headers, which every export of a family writes."""
    return frozenset(source.files) - {next(iter(source.files))}


def put(
    folder: str, files: Mapping[str, str], library: Path, name: str, headers: Collection[str]
) -> tuple[Path, ...]:
    """Write an export's texts, and ``library`` as ``name``; refuses to replace what is not an
    export's own (``export-kept``): authors build into the folder of their program, too.
    ``headers`` are ours by their names."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        there = [place / n for n in files if (place / n).exists()]
        kept = [p for p in there if p.name not in headers and not _ours(p, files[p.name])]
        if kept or (not there and (place / name).exists()):
            path = kept[0] if kept else place / name
            refuse("export-kept", path=path, folder=place / "kernel")
        for n, text in files.items():
            (place / n).write_text(text, encoding="utf-8")
        shutil.copyfile(library, place / name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        refuse("output-unwritable", path=folder, reason=reason, fix="name another folder with -o")
    return tuple(place / n for n in (*files, name))


def _ours(path: Path, text: str) -> bool:
    """Whether an export wrote ``path``."""
    found = path.read_bytes() if path.is_file() else b""
    return MARK.encode() in found[:500] or found == text.encode()


def _library(built: Built) -> str:
    """Python would take ``<name>.so`` for a module of that name."""
    return f"lib{built.source.name}.so"


def _options(built: Built) -> str:
    return " ".join((*OPTIONS, *built.source.flags))


def _declaration(built: Built) -> str:
    out = Writer(names=set(KEYWORDS))
    words = [
        f"{'' if a.role == 'out' else 'const '}{C_TYPES.get(a.dtype.name, 'uint8_t')} *"
        f"{out.name(a.name)}"
        for a in built.source.arguments
    ]
    return f"int {built.source.entry}({', '.join(words)}, char *work, int threads);"


def _shape(a: Argument) -> str:
    return " x ".join(map(str, a.shape)) or "one element"


def _header(built: Built) -> str:
    out = Writer()
    source = built.source
    guard = f"{source.name.upper()}_H"
    out.note(f"How to call {source.name} from C, {MARK}.")
    out.line(f"#ifndef {guard}")
    out.line(f"#define {guard}")
    out.line()
    out.line("#include <stdint.h>")
    out.line()
    out.note(f"cc {_options(built)} -o {_library(built)} {source.name}.c {' '.join(LIBRARIES)}")
    out.line()
    for a in source.arguments:
        at = f", aligned to {a.align}" if a.align > 1 else ""
        out.note(f"{a.name}: {a.role}, {a.dtype}, {_shape(a)}, row-major{at}")
    out.note(f"work: {source.workspace} bytes, aligned to 64, better to {WORK_ALIGN} (NULL: none)")
    out.note("threads: how many may run it, 0 for as many as OpenMP gives")
    out.note("answers 0 if it ran, 1 if cores that wait for one another got no thread each,")
    out.note("2 if a tensor is not aligned as stated")
    out.line(_declaration(built))
    out.line()
    out.line(f"#define {source.name.upper()}_WORKSPACE {source.workspace}")
    out.line()
    out.line("#endif")
    return out.text()


def _loader(built: Built) -> str:
    """A module with one function of the program's name, for torch tensors."""
    source = built.source
    out = Writer(names=set(LOADER))
    function = out.name(source.name)
    named = {a: out.name(a.name) for a in source.arguments}
    given = [a for a in source.arguments if a.role != "out"]
    made = [a for a in source.arguments if a.role == "out"]
    out.line(f'"""Calls {_library(built)} on torch tensors; compiles it where it is missing.')
    out.line()
    out.line(f'It was {MARK}."""')
    out.line()
    for name in ("ctypes", "os", "subprocess"):
        out.line(f"import {name}")
    out.line()
    out.line("import torch")
    out.line()
    out.line("HERE = os.path.dirname(os.path.abspath(__file__))")
    out.line(f'LIBRARY = os.path.join(HERE, "{_library(built)}")')
    out.line(f"OPTIONS = {_options(built)!r}.split()")
    out.line("if not os.path.exists(LIBRARY):")
    out.line(f'    SOURCE = os.path.join(HERE, "{source.name}.c")')
    libraries = ", ".join(repr(x) for x in LIBRARIES)
    out.line(
        f'    subprocess.run(["cc", *OPTIONS, "-o", LIBRARY, SOURCE, {libraries}], check=True)'
    )
    out.line(f"RUN = ctypes.CDLL(LIBRARY).{source.entry}")
    out.line(f"RUN.argtypes = [ctypes.c_void_p] * {len(source.arguments) + 1} + [ctypes.c_int]")
    out.line()
    out.line()
    out.line("def _pointer(x, dtype, shape, align):")
    out.line("    right = x.dtype is dtype and tuple(x.shape) == shape and x.is_contiguous()")
    out.line('    if not right or x.device.type != "cpu" or x.is_neg():')
    out.line(
        '        raise TypeError(f"expected a contiguous {dtype} of shape {shape} on the CPU")'
    )
    out.line("    if x.data_ptr() % align:")
    out.line('        raise TypeError(f"expected memory at a multiple of {align} bytes")')
    out.line("    return x.data_ptr()")
    out.line()
    out.line()
    out.line(f"def {function}({', '.join([*(named[a] for a in given), 'threads=0'])}):")
    out.line('    """' + "; ".join(f"{named[a]}: {a.dtype} {a.shape}" for a in given) + '"""')
    for a in made:
        out.line(f"    {named[a]} = torch.empty({a.shape}, dtype=torch.{a.dtype.torch})")
    out.line(f"    work = torch.empty({source.workspace} + {WORK_ALIGN}, dtype=torch.uint8)")
    out.line(f"    start = -(-work.data_ptr() // {WORK_ALIGN}) * {WORK_ALIGN}")
    words = [
        f"_pointer({name}, torch.{a.dtype.torch}, {a.shape}, {a.align})"
        for a, name in named.items()
    ]
    out.line("    answer = RUN(")
    for word in words:
        out.line(f"        {word},")
    out.line("        start,")
    out.line("        threads,")
    out.line("    )")
    out.line("    if answer:")
    out.line('        raise RuntimeError("cores that wait for one another got no thread each")')
    out.line(f"    return {', '.join(named[a] for a in made)}")
    return out.text()
