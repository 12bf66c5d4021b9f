"""The system's C compiler, and what it is asked."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tilefoundry.build.cache import Entry, entry, key_of
from tilefoundry.diag import refuse
from tilefoundry.emit.source import Source

CANDIDATES = ("cc", "gcc", "clang")
OPTIONS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-fopenmp",
    "-ffp-contract=off",  # a product that is added rounds first, as the program says
    "-fno-math-errno", "-fno-trapping-math",  # roots and comparisons as vectors
    "-fwrapv",  # integers wrap, as torch's do
    "-Wall", "-Wno-unknown-pragmas", "-Wno-psabi",
)  # fmt: skip
LIBRARIES = ("-lm",)
SECONDS = 600


@cache
def compiler() -> tuple[str, str]:
    """Path and version of the C compiler; refuses a machine that has none."""
    wanted = os.environ.get("CC")
    names = (wanted,) if wanted else CANDIDATES
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        refuse("build-compiler", None, wanted=" ".join(names))
    path = os.path.realpath(found)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        refuse("build-compiler", None, wanted=f"{path} ({error})")
    return path, (done.stdout.splitlines() or ["unknown version"])[0]


READS = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
         "CCC_OVERRIDE_OPTIONS", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET")  # fmt: skip
"""Variables that C compilers take options or places from."""
ENVIRONMENT = ("CC", *READS)
"""Those that decide what compiles, and to what: a jailed process compiles by the same."""


def stated(path: str, version: str, variables: tuple[str, ...]) -> tuple[str, ...]:
    """A compiler in a key: its file, its version, what it reads of the environment."""
    try:
        state = os.stat(path)
        file = f"{state.st_size} {state.st_mtime_ns}"
    except OSError:  # a library that the system's loader finds by its name
        file = ""
    return path, version, file, *(f"{v}={os.environ[v]}" for v in variables if v in os.environ)


def identity() -> tuple[str, ...]:
    """All of this machine that may decide what a source is compiled to."""
    return *stated(*compiler(), READS), platform.machine(), processor()


def command(source: Source, file: str, library: str) -> list[str]:
    """The compiler's command line, without its path."""
    return [*OPTIONS, *source.flags, "-o", library, file, *LIBRARIES]


def compiled(source: Source) -> Entry:
    """The library of ``source``, from the cache or compiled now."""
    path, version = compiler()
    file, library = next(iter(source.files)), f"{source.name}.so"
    native = [processor()] if "-march=native" in source.flags else []
    said = command(source, file, library)
    parts = [*stated(path, version, READS), platform.machine(), *native, *said]
    for name, text in source.files.items():
        parts += [name, text]

    def make(folder: Path) -> None:
        for name, text in source.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [path, *said], cwd=folder, capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode:
            lines = [x for x in done.stderr.splitlines() if "error" in x] or [done.stderr.strip()]
            refuse("build-compile", None, notes=tuple(done.stderr.splitlines()[:20]),
                   compiler=version, error=lines[0])  # fmt: skip

    return entry(key_of(parts), library, make)


def processor() -> str:
    """What ``-march=native`` stands for on this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return platform.processor()
    kept = ("model name", "flags", "Features", "CPU part")
    return "".join(x for x in text.splitlines(True) if x.startswith(kept))


def resources(made: Entry) -> dict[str, dict[str, object]]:
    """Of each kernel what the compiler says it takes: C compilers say nothing."""
    return {}
