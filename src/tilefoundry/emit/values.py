"""The values of a program by name, for the sources and loaders of all targets."""

from __future__ import annotations

from tilefoundry.diag import refuse
from tilefoundry.emit.source import Argument
from tilefoundry.lang.source import lines_of
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.tir.program import Buffer, Issue, Program, View, walk


def authors(program: Program) -> dict[str, tuple[str, ...]]:
    """The lines of the author's files, for comments."""
    files = {s.file for k in program.kernels.values() if (s := k.span) is not None}
    return {file: lines_of(file) for file in files}


def values_of(program: Program) -> dict[str, Buffer]:
    """Every value of the program by name, as a parameter of a kernel that takes it."""
    out: dict[str, Buffer] = {}
    for launch in program.launches:
        params = program.kernels[launch.kernel].params
        names = (*launch.inputs, *launch.outputs)
        for name, param in zip(names, params, strict=True):
            out.setdefault(name, param)
    return out


def addresses_of(program: Program) -> dict[str, int]:
    """What the instructions of the kernels ask of the addresses of values, in bytes."""
    out: dict[str, int] = {}
    for launch in program.launches:
        func = program.kernels[launch.kernel]
        asked = {
            view.buffer: contract.address
            for stmt, _ in walk(func.body)
            if isinstance(stmt, Issue)
            and isinstance(contract := contract_at(stmt.instr), CopyInstr)
            for view in (*stmt.reads, *stmt.writes)
            if isinstance(view, View)
        }
        names = (*launch.inputs, *launch.outputs)
        for name, param in zip(names, func.params, strict=True):
            out[name] = max(out.get(name, 1), asked.get(param, 1))
    return out


def arguments_of(program: Program, values: dict[str, Buffer]) -> tuple[Argument, ...]:
    """The arguments of the program's entry: inputs, then results."""
    out: list[Argument] = []
    align = addresses_of(program)
    for name in program.inputs:
        if name not in values:
            refuse("emit-form", None, what=f"the input {name}", why="no kernel reads it",
                   fix="remove it")  # fmt: skip
        _plain(name, values[name])
        role = "weight" if name in program.weights else "in"
        out.append(Argument(name, values[name].dtype, values[name].shape, role, align[name]))
    for name in program.results:
        if name in program.inputs:
            refuse("emit-form", None, what=f"the result {name}", why="it is an input as it stands",
                   fix="return what a kernel makes")  # fmt: skip
        _plain(name, values[name])
        out.append(Argument(name, values[name].dtype, values[name].shape, "out", align[name]))
    return tuple(out)


def _plain(name: str, buffer: Buffer) -> None:
    """The caller's tensors are row-major: refuses an argument that is to lie otherwise."""
    layout = buffer.layout
    if layout is None or layout.strides is None:
        return
    inner, plain = 1, layout.swizzle is None and layout.offset == 0
    for extent, stride in reversed([*zip(layout.modes, layout.strides, strict=True)]):
        plain = plain and (extent == 1 or stride == inner)
        inner = inner * extent
    if not plain:
        refuse("emit-form", buffer.span, what=f"{name}: {buffer.type} between caller and program",
               why="the caller's tensors are row-major",
               fix="let a function of the program pack or unpack it")  # fmt: skip
