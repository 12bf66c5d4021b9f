"""CUDA source to a cubin: nvcc where there is one, else NVRTC."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.build.cache import Entry, entry, key_of
from tilefoundry.build.compiler import READS as C_READS
from tilefoundry.build.compiler import stated
from tilefoundry.diag import refuse
from tilefoundry.emit.source import Source

ARCH = "sm_90a"
OPTIONS = (
    f"-arch={ARCH}", "-std=c++17",
    "-fmad=false",  # a product that is added rounds first, as the program says
)  # fmt: skip
NVCC = ("-cubin", "-lineinfo", "-O3", "-Xptxas", "-v", "-diag-suppress", "177")
RTC = ("--ptxas-options=-v",)
"""No table of lines: NVRTC writes the time of day into it."""
READS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPLUS_INCLUDE_PATH", *C_READS)
"""Variables that nvcc, and the C++ compiler that it asks, take options or places from."""
ENVIRONMENT = ("NVCC", *READS)
"""Those that decide what compiles, and to what: a jailed process compiles by the same."""
SECONDS = 600
LOG, SAID = "compiler.log", "compiler.options"
"""What the compiler said, and what it was asked, a word a line."""
HERE = "/proc/self/cwd"
"""The folder of a process by a name that is the same wherever it is: that which nvcc runs in;
for a debugger that names of files begin with, its own, where the author's paths lead."""
RELATIVE = re.compile(r'(?<=^#line )(\d+) "(?!/)', re.MULTILINE)
INTERNAL = re.compile(rb"(?<=_INTERNAL_)[0-9a-f]{8}(?=_)")
"""A hash of that folder in names of functions, for the debugger."""


@cache
def compiler() -> tuple[str, str]:
    """Path and version of nvcc, or of the NVRTC library; refuses a machine without either."""
    wanted = os.environ.get("NVCC")
    places = (wanted,) if wanted else ("nvcc", "/usr/local/cuda/bin/nvcc")
    found = next(filter(None, map(shutil.which, places)), None)
    if found is not None:
        path = os.path.realpath(found)
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
        lines = done.stdout.splitlines() or ["unknown version"]
        return path, lines[-1] if len(lines) < 2 else lines[-2]
    for path in _rtc_places():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
            return path, f"NVRTC {major.value}.{minor.value}"
    refuse("build-compiler", None, wanted="nvcc libnvrtc.so")


def _rtc_places() -> list[str]:
    """Where NVRTC may be: the system's libraries, and the packages that torch brings."""
    found = [f"libnvrtc.so{end}" for end in (".13", ".12", "")]
    for folder in (*sys.path, "/usr/local/cuda/lib64"):
        for pattern in ("nvidia/*/lib/libnvrtc.so*", "libnvrtc.so*"):
            found += sorted(glob.glob(os.path.join(folder, pattern)))
    return [p for p in found if "builtins" not in p]


def identity() -> tuple[str, ...]:
    """All of this machine that may decide what a source is compiled to."""
    return stated(*compiler(), READS)


def compiled(source: Source) -> Entry:
    """The cubin of ``source``, from the cache or compiled now."""
    path, version = compiler()
    files = {n: RELATIVE.sub(rf'\1 "{HERE}/', text) for n, text in source.files.items()}
    source = replace(source, files=files)
    file, cubin = next(iter(source.files)), f"{source.name}.cubin"
    rtc = "nvrtc" in os.path.basename(path)
    said = [*OPTIONS, *(RTC if rtc else NVCC), *source.flags]
    parts = [*identity(), *said]
    for name, text in source.files.items():
        parts += [name, text]

    def once(folder: Path, options: list[str]) -> str:
        if rtc:
            log = _by_rtc(path, source, options, folder / cubin, version)
        else:
            log = _by_nvcc(path, options, folder, file, cubin, version)
        return log

    def make(folder: Path) -> None:
        for name, text in source.files.items():
            (folder / name).write_text(text, encoding="utf-8")
            os.utime(folder / name, (0, 0))  # which the line table names
        asked = said
        log = once(folder, asked)
        wanted = {m[1]: int(m[2]) for m in _RESIDENT.finditer(source.files[file])}
        while True:
            spilt = [f"{k.upper()}_RESIDENT" for k, r in _resources(log).items()
                     if r.get("spill_bytes")]  # fmt: skip
            fewer = {m: wanted[m] * 7 // 8 for m in spilt if wanted.get(m, 1) > 1}
            if not fewer:
                break
            wanted |= fewer
            asked = [*said, *(f"-D{m}={n}" for m, n in wanted.items())]
            log = once(folder, asked)
        (folder / SAID).write_text("\n".join(asked), encoding="utf-8")
        (folder / LOG).write_text(log, encoding="utf-8")

    return entry(key_of(parts), cubin, make)


def _by_nvcc(
    path: str, options: list[str], folder: Path, file: str, cubin: str, version: str
) -> str:
    """Compiles ``file`` of ``folder``; answers the log. What is compiled does not depend on the
    folder, so that whoever compiles the same source has the same bytes."""
    place = HERE if os.path.isdir(HERE) else "."
    try:
        done = subprocess.run([path, *options, "-o", cubin, f"{place}/{file}"], cwd=folder,
                              capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        _refused(f"error: {error}", version)
    if done.returncode:
        _refused(done.stderr, version)
    made = folder / cubin
    made.write_bytes(INTERNAL.sub(b"0" * 8, made.read_bytes()))
    return done.stderr


def _refused(log: str, version: str) -> NoReturn:
    lines = [x for x in log.splitlines() if "error" in x] or [log.strip()]
    refuse("build-compile", None, notes=tuple(log.splitlines()[:20]),
           compiler=version, error=lines[0])  # fmt: skip


def _by_rtc(path: str, source: Source, options: list[str], cubin: Path, version: str) -> str:
    """Compiles through the library; answers its log."""
    lib: Any = ctypes.CDLL(path)
    name, *others = source.files
    headers = [source.files[n].encode() for n in others]
    names = [n.encode() for n in others]
    program = ctypes.c_void_p()
    array = ctypes.c_char_p * max(1, len(others))
    text = source.files[name].encode()
    called = f"{HERE}/{name}".encode()
    status = lib.nvrtcCreateProgram(
        ctypes.byref(program), text, called, len(others), array(*headers), array(*names)
    )
    if status:
        _refused(f"error: NVRTC answers {status}", version)
    given = [o.encode() for o in options]
    status = lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    log = _bytes(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program).decode(
        "utf-8", "replace"
    ).rstrip("\0")  # fmt: skip
    if status:
        _refused(log, version)
    cubin.write_bytes(_bytes(lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN, program))
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return log


def _bytes(size: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    count = ctypes.c_size_t()
    size(program, ctypes.byref(count))
    data = ctypes.create_string_buffer(count.value)
    get(program, data)
    return data.raw


_RESIDENT = re.compile(r"#define (\w+_RESIDENT) (\d+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


def resources(made: Entry) -> dict[str, dict[str, object]]:
    """Of each kernel what the assembler says: registers, spilled and stack bytes, warnings."""
    try:
        log = (made.folder / LOG).read_text(encoding="utf-8")
    except OSError:
        return {}
    return _resources(log)


def _resources(log: str) -> dict[str, dict[str, object]]:
    out: dict[str, dict[str, object]] = {}
    here: dict[str, object] = {}
    for line in log.splitlines():
        found = _ENTRY.search(line)
        if found:
            here = out.setdefault(found[1], {})
        found = _SPILL.search(line)
        if found:
            here.update(stack_bytes=int(found[1]), spill_bytes=int(found[2]) + int(found[3]))
        found = _USED.search(line)
        if found:
            here["registers"] = int(found[1])
        if "serialized" in line or "setmaxnreg" in line:
            here["finding"] = line.strip()
    return out
