"""Loads, stores and outer products as words with constant operands."""

from __future__ import annotations

from itertools import product

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.apple_amx.instr.amx import ROW
from tilefoundry.targets.apple_amx.words import ZEROS, fma, move
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.place import Place, place
from tilefoundry.targets.contract.registry import every_contract
from tilefoundry.targets.contract.rows import Rows
from tilefoundry.targets.cpu.emit.files import start
from tilefoundry.targets.cpu.emit.kernel import Kernel
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View

Z_ROWS = 64


def first(k: Kernel, view: View) -> int:
    """The byte of its register file where the view begins."""
    at = start(view)
    if at is None:
        k.form(None, f"{view}", "rows are named by constants",
               "give each row set a buffer of its own")  # fmt: skip
    assert at is not None
    return at


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
    contract = every_contract()[atom.path]
    acc, a, b = issue.reads
    assert isinstance(contract, MmaAtom)
    assert isinstance(acc, View) and isinstance(a, View) and isinstance(b, View)
    env = contract.completed(dict(atom.params), a.dtype.bits)
    size = contract.shape(env)
    op = atom.path.rpartition(".")[2].upper()
    wide = op == "FMA16" and acc.dtype.name == "f32"
    order, repeat = issue.attrs["order"], issue.attrs["repeat"]
    for counts in product(*(range(repeat[axis]) for axis in order)):
        at = dict(zip(order, counts, strict=True))
        m, n, depth = (at[axis] * size[axis] for axis in range(3))
        x, y = byte(k, b, depth, n), byte(k, a, m, depth)
        operand = fma(x, y, byte(k, acc, m, n) // ROW, wide=wide)
        k.out.line(f"TF_AMX(TF_{op}, {operand:#x}); /* x {x}, y {y} */")


def byte(k: Kernel, view: View, row: int, column: int) -> int:
    """Where element (row, column) of the view lies in its register file."""
    lies = place(view.buffer.type)
    assert isinstance(lies, Place)
    at = lies.along(0, row) + lies.along(1, column)
    assert isinstance(at, int)
    return first(k, view) + at * lies.bits // 8


MOVES = ("Ldx", "Ldy", "Ldz", "Ldzi", "Stz", "Stzi")
EMITTERS = {
    "apple.amx.Zero": emit_zero,
    **{f"apple.amx.{name}": emit_move for name in MOVES},
    **{f"apple.amx.{name}": emit_product for name in ("Fma16", "Fma32")},
}
