"""The values of a program by name, for the sources and loaders of all targets."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.diag import refuse
from tilefoundry.emit.source import Argument
from tilefoundry.tir.program import Buffer, Program


def authors(program: Program) -> dict[str, list[str]]:
    """The lines of the author's files, for comments."""
    files = {s.file for k in program.kernels.values() if (s := k.span) is not None}
    return {
        f: Path(f).read_text(encoding="utf-8", errors="replace").splitlines()
        for f in files if Path(f).is_file()
    }  # fmt: skip


def values_of(program: Program) -> dict[str, Buffer]:
    """Every value of the program by name, as a parameter of a kernel that takes it."""
    out: dict[str, Buffer] = {}
    for launch in program.launches:
        params = program.kernels[launch.kernel].params
        names = (*launch.inputs, *launch.outputs)
        for name, param in zip(names, params, strict=True):
            out.setdefault(name, param)
    return out


def arguments_of(program: Program, values: dict[str, Buffer]) -> tuple[Argument, ...]:
    """The arguments of the program's entry: inputs, then results."""
    out: list[Argument] = []
    for name in program.inputs:
        if name not in values:
            refuse("emit-form", None, what=f"the input {name}", why="no kernel reads it",
                   fix="remove it")  # fmt: skip
        role = "weight" if name in program.weights else "in"
        out.append(Argument(name, values[name].dtype, values[name].shape, role))
    for name in program.results:
        if name in program.inputs:
            refuse("emit-form", None, what=f"the result {name}", why="it is an input as it stands",
                   fix="return what a kernel makes")  # fmt: skip
        out.append(Argument(name, values[name].dtype, values[name].shape, "out"))
    return tuple(out)
