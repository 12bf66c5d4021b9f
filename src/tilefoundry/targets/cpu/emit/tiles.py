"""Intel AMX as C: tiles are named by constants, so every repeat is written out."""

from __future__ import annotations

from itertools import product

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.place import Place, place
from tilefoundry.targets.contract.registry import every_contract
from tilefoundry.targets.contract.rows import Rows
from tilefoundry.targets.cpu.emit.files import start
from tilefoundry.targets.cpu.emit.kernel import Kernel
from tilefoundry.targets.cpu.instr.amx import TILE
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View


def first(k: Kernel, view: View) -> int:
    """The byte of the tile registers where the view begins."""
    at = start(view)
    if at is None:
        k.form(None, f"{view}", "tiles are named by constants",
               "give each tile a buffer of its own")  # fmt: skip
    assert at is not None
    return at


def emit_zero(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    write = issue.writes[0]
    count = write.buffer.type.nbytes()
    assert isinstance(count, int)
    for n in range(count // TILE):
        k.out.line(f"TF_TILE_ZERO({first(k, write) // TILE + n});")


def emit_move(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One load or store for each tile: 16 rows at one distance."""
    source, write = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    rows = plan_of(issue, mesh, k.level)
    assert isinstance(rows, Rows)
    load = write.storage == "tmem"
    file, memory = (write, source) if load else (source, write)
    word = "LOAD" if load else "STORE"
    size = memory.dtype.bits // 8
    for row, stride in rows.tiles:
        begin = rows.rows[row]
        tile = (first(k, file) + begin.register) // TILE
        where = f"{k.names[memory.buffer]} + {k.dim(rows.base + begin.memory)}"
        k.out.line(f"TF_TILE_{word}({tile}, {where}, {stride * size});")


def emit_product(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """The repeats, nested as the order says."""
    atom = issue.attrs["atom"]
    contract = every_contract()[atom.path]
    acc, a, b = issue.reads
    assert isinstance(contract, MmaAtom)
    assert isinstance(acc, View) and isinstance(a, View) and isinstance(b, View)
    size = contract.shape(contract.completed(dict(atom.params), a.dtype.bits))
    word = atom.path.rpartition(".")[2].upper()
    order, repeat = issue.attrs["order"], issue.attrs["repeat"]
    for counts in product(*(range(repeat[axis]) for axis in order)):
        at = dict(zip(order, counts, strict=True))
        m, n, depth = (at[axis] * size[axis] for axis in range(3))
        tiles = (number(k, acc, m, n), number(k, a, m, depth), number(k, b, depth, n))
        k.out.line(f"TF_{word}({', '.join(map(str, tiles))});")


def number(k: Kernel, view: View, row: int, column: int) -> int:
    """The tile register of the atom that begins at (row, column) of the view."""
    lies = place(view.buffer.type)
    assert isinstance(lies, Place)
    at = lies.along(0, row) + lies.along(1, column)
    assert isinstance(at, int)
    return (first(k, view) + at * lies.bits // 8) // TILE


PRODUCTS = ("TdpBf16Ps", "TdpBusd", "TdpBssd", "TdpBsud", "TdpBuud")
EMITTERS = {
    "x86.amx.TileZero": emit_zero,
    "x86.amx.TileLoad": emit_move,
    "x86.amx.TileStore": emit_move,
    **{f"x86.amx.{name}": emit_product for name in PRODUCTS},
}
