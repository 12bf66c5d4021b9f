"""Loads, stores and outer products as words with constant operands."""

from __future__ import annotations

from tilefoundry.emit.c.called import atoms
from tilefoundry.emit.c.files import byte, first
from tilefoundry.emit.c.kernel import Kernel
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.apple_amx.instr.amx import ROW
from tilefoundry.targets.apple_amx.words import ZEROS, fma, move
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.contract.rows import Rows
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View

Z_ROWS = 64


def emit_zero(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """All of Z by one outer product without inputs, else row by row."""
    write = issue.writes[0]
    size = write.buffer.type.nbytes()
    assert isinstance(size, int)
    if size == Z_ROWS * ROW:
        k.out.line(f"TF_AMX(TF_FMA16, {fma(wide=True, skip=ZEROS):#x});")
        return
    for row in range(first(k, write) // ROW, (first(k, write) + size) // ROW):
        k.out.line(f"TF_AMX(TF_FMA32, {fma(z=row, vector=True, skip=ZEROS):#x});")


def emit_move(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One word for each row of 64 bytes."""
    op = issue.instr.rpartition(".")[2].lower()
    source, write = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    rows = plan_of(issue, mesh, k.level)
    assert isinstance(rows, Rows)
    file, memory = (write, source) if op.startswith("ld") else (source, write)
    for row in rows.rows:
        number = (first(k, file) + row.register) // ROW
        where = f"(uint64_t)({k.names[memory.buffer]} + {k.dim(rows.base + row.memory)})"
        operand = move(op, number)
        k.out.line(f"TF_AMX(TF_{op.upper()}, {where} | {operand:#x});")


def emit_product(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """An outer product for each step of k, as the order nests the repeats."""
    atom = issue.attrs["atom"]
    contract = contract_at(atom.path)
    assert isinstance(contract, MmaAtom)
    op = atom.path.rpartition(".")[2].upper()
    wide = op == "FMA16" and issue.writes[0].dtype.name == "f32"
    for acc, a, b in atoms(contract, issue):
        x, y = byte(k, *b), byte(k, *a)
        operand = fma(x, y, byte(k, *acc) // ROW, wide=wide)
        k.out.line(f"TF_AMX(TF_{op}, {operand:#x}); /* x {x}, y {y} */")


MOVES = ("Ldx", "Ldy", "Ldz", "Ldzi", "Stz", "Stzi")
EMITTERS = {
    "apple.amx.Zero": emit_zero,
    **{f"apple.amx.{name}": emit_move for name in MOVES},
    **{f"apple.amx.{name}": emit_product for name in ("Fma16", "Fma32")},
}
