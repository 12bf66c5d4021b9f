"""Instructions that C says by one call: the contract's text, with the operands' places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from tilefoundry.emit.c.files import byte, first, row
from tilefoundry.emit.c.kernel import Kernel
from tilefoundry.emit.c.moves import emit_copy
from tilefoundry.emit.c.vector_mma import emit_vector_mma
from tilefoundry.emit.registry import Emitter, emitter_of, instruction
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.contract.rows import Rows
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.unit import UnitInstr
from tilefoundry.targets.target import Target
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View

Part = tuple[View, int, int]
"""Of a view the atom that begins at a row and column."""


def atoms(contract: MmaAtom, issue: Issue) -> Iterator[tuple[Part, Part, Part]]:
    """The accumulator's, A's and B's part of each repeat, nested as the order says."""
    acc, a, b = issue.reads
    assert isinstance(acc, View) and isinstance(a, View) and isinstance(b, View)
    size = contract.shape(contract.completed(dict(issue.attrs["atom"].params), a.dtype.bits))
    order, repeat = issue.attrs["order"], issue.attrs["repeat"]
    for counts in product(*(range(repeat[axis]) for axis in order)):
        at = dict(zip(order, counts, strict=True))
        m, n, depth = (at[axis] * size[axis] for axis in range(3))
        yield (acc, m, n), (a, m, depth), (b, depth, n)


def emit_product(k: Kernel, contract: MmaAtom, call: str, issue: Issue, mesh: Mesh) -> None:
    if not row(k, issue.writes[0]):
        emit_vector_mma(k, contract, call, issue)
        return
    for parts in atoms(contract, issue):
        numbers = [byte(k, *part) // row(k, part[0]) for part in parts]
        k.out.line(f"{call}({', '.join(map(str, numbers))});")


def emit_move(k: Kernel, contract: CopyInstr, call: str, issue: Issue, mesh: Mesh) -> None:
    """One call for each row, or for each tile of rows at one distance; for each vector where
    no register file has rows."""
    if not contract.rows:
        emit_copy(k, issue, mesh, contract.c)
        return
    source, write = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    rows = plan_of(issue, mesh, k.level)
    assert isinstance(rows, Rows)
    file, memory = (write, source) if row(k, write) else (source, write)
    size = memory.dtype.bits // 8
    for number, stride in rows.tiles:
        begin = rows.rows[number]
        into = (first(k, file) + begin.register) // row(k, file)
        where = f"{k.names[memory.buffer]} + {k.dim(rows.base + begin.memory)}"
        apart = f", {stride * size}" if rows.height > 1 else ""
        k.out.line(f"{call}({into}, {where}{apart});")


def emit_unit(k: Kernel, contract: UnitInstr, call: str, issue: Issue, mesh: Mesh) -> None:
    write = issue.writes[0]
    if size := row(k, write):
        bytes = write.buffer.type.nbytes()
        assert isinstance(bytes, int)
        for number in range(first(k, write) // size, (first(k, write) + bytes) // size):
            k.out.line(f"{call}({number});")
        return
    driver = k.driver(issue)
    if driver is None:
        k.form(issue, f"T.{issue.instr} on memory", "it works on registers",
               'tf.reshard(..., storage="rmem") first')  # fmt: skip
        return
    for at in k.each(k.domain(driver)):
        operands = [k.value(x, at) for x in issue.reads]
        k.put(write, at, f"{call}({', '.join(operands)})")


_WRITERS: dict[type, Callable[..., None]] = {
    MmaAtom: emit_product, CopyInstr: emit_move, UnitInstr: emit_unit,
}  # fmt: skip


def text_of(issue: Issue) -> CText | None:
    """How the issue's contract has C say it; None where an emitter does."""
    return getattr(contract_at(instruction(issue)), "c", None)


def writer(target: Target, issue: Issue) -> Emitter:
    """Who writes an issue: the call of its contract's text, else the family's emitter."""
    text = text_of(issue)
    if text is None:
        return emitter_of(target, issue)
    contract = contract_at(instruction(issue))
    write = _WRITERS[type(contract)]
    return lambda k, issue, mesh: write(k, contract, text.call, issue, mesh)
