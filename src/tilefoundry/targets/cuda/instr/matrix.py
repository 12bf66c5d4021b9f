"""ldmatrix and stmatrix: a warp moves 8 x 8 matrices between shared memory and fragments.

PTX ISA, ldmatrix: each row of a matrix is 16 contiguous bytes at a multiple of 16; lane
8 · j + i gives the address of row i of matrix j; lane l receives, of each matrix, the 4 bytes
at 4 · (l % 4) of row l / 4; with ``.trans`` (16-bit elements) the elements 2 · (l % 4) and
2 · (l % 4) + 1 of column l / 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import Copy, CopyInstr, Side, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place, panels

ROW, WARP = 16, 32


class Fragment:
    """Who holds what of a tile in registers: per axis the part of the coordinate that a
    unit's position gives, and the part of the register number."""

    def __init__(self, side: Side, fastest: int | None = None) -> None:
        """``fastest``: the local mode that varies first where no order is stated."""
        held = side.type
        layout = held.layout
        assert layout is not None
        groups = layout.groups(held.shape)
        self.rank = held.rank
        self._units: list[tuple[int, int, int, int]] = []  # stride, extent, axis, inner
        locals_: dict[int, tuple[int, int, int]] = {}
        self.base = next((a.offset for a in layout.split_axes if a.level == "thread"), 0)
        for dim, group in enumerate(groups):
            inner = 1
            for mode in reversed(group):
                extent = int(layout.modes[mode])  # type: ignore[arg-type]
                axis = layout.axes[mode] if layout.axes else None
                if axis is None:
                    locals_[mode] = (extent, dim, inner)
                elif axis.level == "thread":
                    self._units.append((axis.stride, extent, dim, inner))
                inner *= extent
        order = side.registers or tuple(sorted(locals_, key=lambda m: (m != fastest, -m)))
        self.modes = order
        self._locals = [locals_[m] for m in order]

    @property
    def registers(self) -> int:
        count = 1
        for extent, _, _ in self._locals:
            count *= extent
        return count

    def of_thread(self, thread: int) -> list[int]:
        """The coordinate of register 0 of a thread."""
        at = [0] * self.rank
        for stride, extent, axis, inner in self._units:
            at[axis] += (thread - self.base) // stride % extent * inner
        return at

    def run(self, packed: int) -> int | None:
        """The axis along which the ``packed`` elements of lanes 4i .. 4i + 3 follow each
        other; None where they do not."""
        rows = [
            [
                a + b
                for a, b in zip(self.of_thread(self.base + lane), self.of_register(e), strict=True)
            ]
            for lane in range(4)
            for e in range(packed)
        ]
        for axis in range(self.rank):
            step = [int(n == axis) for n in range(self.rank)]
            want = [
                [a + k * d for a, d in zip(rows[0], step, strict=True)] for k in range(len(rows))
            ]
            if rows == want:
                return axis
        return None

    def of_register(self, register: int) -> list[int]:
        """What a register adds to it."""
        at = [0] * self.rank
        for extent, axis, inner in self._locals:
            at[axis] += register % extent * inner
            register //= extent
        return at


@dataclass(frozen=True)
class MatrixPlan:
    """``count`` matrices an issue (1, 2 or 4), ``issues`` a warp; ``trans`` if a register's
    elements run down a column; ``packed`` elements in a register of 32 bits.

    Registers are numbered in the fragment's order; issue q fills the 32-bit registers
    q · count ... q · count + count - 1 of each lane.
    """

    count: int
    issues: int
    trans: bool
    packed: int
    fragment: Fragment
    row_bytes = ROW

    @property
    def repeat(self) -> tuple[int, ...]:
        return (self.issues,)

    def row(self, issue: int, lane: int) -> tuple[int, int]:
        """(lane, element register) that holds the first element of the row whose address
        ``lane`` gives in issue ``issue``; its coordinate is where the row starts. Lanes that
        give no address repeat those that do."""
        matrix, row = lane % (8 * self.count) // 8, lane % 8
        register = (issue * self.count + matrix) * self.packed
        if self.trans:
            return row // 2, register + row % 2
        return 4 * row, register

    def coordinate(self, issue: int, thread: int) -> tuple[int, ...]:
        """Where the row starts whose address ``thread`` gives in issue ``issue``."""
        lane, register = self.row(issue, thread % WARP)
        first = self.fragment.of_thread(thread // WARP * WARP + lane)
        more = self.fragment.of_register(register)
        return tuple(a + b for a, b in zip(first, more, strict=True))

    def rows(self, team: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
        """Where the rows start that the threads of a warp give, in each issue."""
        for issue in range(self.issues):
            yield [self.coordinate(issue, t) for t in team[: 8 * self.count]]

    def text(self) -> str:
        form = f"x{self.count}" + (".trans" if self.trans else "")
        return f"form={form} issues={self.issues}"


def matrix_plan(copy: Copy, memory: Side, held: Side) -> MatrixPlan | Unmet:
    """How the warps of ``copy`` move the tile between ``memory`` and the fragment ``held``.

    Checks every row of every warp: 16 contiguous bytes at a multiple of 16, and each lane's
    register where the instruction puts it.
    """
    found = memory.place()
    if isinstance(found, Unmet):
        return found
    bits = found.bits
    if bits not in (8, 16, 32):
        return Unmet("dtype", "elements of 1, 2 or 4 bytes", f"{memory.type.dtype}")
    threads = copy.mesh.units(copy.level)
    starts = range(0, len(threads), WARP)
    whole = len(threads) % WARP == 0 and all(
        sorted(threads)[i] % WARP == 0 and sorted(threads)[i + WARP - 1] == sorted(threads)[i] + 31
        for i in starts
    )
    if not whole:
        fix = 'with Mesh(("thread",), layout=(warps, 8, 4), names=(...)) as units:'
        return Unmet(
            "mesh", "whole warps: 32 threads from a multiple of 32 on", f"{copy.mesh}", fix
        )
    if held.type.layout is None or not held.type.layout.split_axes:
        want = "a fragment: rows over lane / 4, 4 bytes of each over lane % 4"
        return Unmet("fragment", want, f"{held.type}", _fragment_fix(held.type))
    packed = 32 // bits
    fragment = _packed(held, packed)
    if fragment.registers % packed:
        want = f"a multiple of {packed} elements in each unit"
        return Unmet("fragment", want, f"{fragment.registers}", _fragment_fix(held.type))
    along = fragment.run(packed)
    if along is None:
        got = f"{held.type}"
        return Unmet("fragment", "4 bytes of a row to each of lanes 4i .. 4i + 3", got,
                     _fragment_fix(held.type))  # fmt: skip
    fast = next((n for n, m in enumerate(found.modes) if m and m[-1][1] == 1), along)
    trans = bits == 16 and fast != along
    clash = _clash(found, fragment, sorted(threads), packed, trans)
    if clash is None:
        matrices = fragment.registers // packed
        count = next(c for c in (4, 2, 1) if matrices % c == 0 and _alike(fragment, c * packed))
        return MatrixPlan(count, matrices // count, trans, packed, fragment)
    if bits != 16:
        fast = along
    fix = panels(found.shape, bits, fast) if len(found.shape) == 2 else ""
    return Unmet(clash.clause, clash.expected, clash.got, fix)


def _alike(fragment: Fragment, size: int) -> bool:
    """Each ``size`` registers lie to one another as the first do, so that lanes give the rows of
    all issues at one distance."""
    first = [fragment.of_register(r) for r in range(size)]
    for start in range(size, fragment.registers, size):
        begin = fragment.of_register(start)
        for r, at in enumerate(first):
            moved = [a + b for a, b in zip(begin, at, strict=True)]
            if moved != fragment.of_register(start + r):
                return False
    return True


def _packed(held: Side, packed: int) -> Fragment:
    """The fragment, in an order that packs neighbours into a register where no order is
    stated and one does."""
    first = Fragment(held)
    if held.registers is None:
        for mode in first.modes:
            tried = Fragment(held, mode)
            if tried.run(packed) is not None:
                return tried
    return first


def _clash(
    memory: Place, fragment: Fragment, threads: list[int], packed: int, trans: bool
) -> Unmet | None:
    """None if every row of every warp is one that the instruction moves."""
    size = memory.bits // 8
    steps = [[int(memory.along(axis, i)) for i in range(e)] for axis, e in enumerate(memory.shape)]  # type: ignore[arg-type]
    swizzle = memory.swizzle
    base = memory.base if isinstance(memory.base, int) else 0
    if memory.align % ROW or memory.chunk < ROW:
        return Unmet("alignment", "rows at multiples of 16 bytes",
                     f"a base aligned to {min(memory.align, memory.chunk)}")  # fmt: skip
    registers = [fragment.of_register(r) for r in range(fragment.registers)]
    for first in range(0, len(threads), WARP):
        lanes = [fragment.of_thread(t) for t in threads[first : first + WARP]]
        for register in range(0, len(registers), packed):
            held: list[list[int]] = []  # of each element of the register, where every lane's lies
            for more in registers[register : register + packed]:
                linear = [base] * WARP
                for step, crd, m in zip(steps, zip(*lanes, strict=True), more, strict=True):
                    linear = [at + step[c + m] for at, c in zip(linear, crd, strict=True)]
                places = [at * size for at in linear]
                held.append(places if swizzle is None else [*map(swizzle, places)])
            rows = [held[i % 2][i // 2] if trans else held[0][4 * i] for i in range(8)]
            for row in rows:
                if row % ROW:
                    return Unmet("alignment", "rows at multiples of 16 bytes", f"one at {row}")
            for lane in range(WARP):
                for e in range(packed):
                    want = (
                        rows[2 * (lane % 4) + e] + 2 * (lane // 4)
                        if trans
                        else rows[lane // 4] + 4 * (lane % 4) + e * size
                    )
                    got = held[e][lane]
                    if got != want:
                        what = f"lane {lane}, register {register + e}: {got - want:+d} bytes off"
                        return Unmet("rows", "rows of 16 contiguous bytes, over lane / 4", what)
    return None


def _fragment_fix(held: TensorType) -> str:
    packed = 32 // held.dtype.bits
    inner = f", {packed}" if packed > 1 else ""
    if held.rank != 2:
        return ""
    rows, columns = held.shape
    lead = f"{int(rows) // 8}, " if int(rows) > 8 else ""  # type: ignore[arg-type]
    blocks = int(columns) // (4 * packed)  # type: ignore[arg-type]
    middle = f"{blocks}, " if blocks > 1 else ""
    return f"({lead}8 @ units.lane8, {middle}4 @ units.lane4{inner})"


def load(copy: Copy) -> MatrixPlan | Unmet:
    """ldmatrix: shared memory to a fragment."""
    bad = same_bits(copy.source, copy.target)
    return bad if bad is not None else matrix_plan(copy, copy.source, copy.target)


def store(copy: Copy) -> MatrixPlan | Unmet:
    """stmatrix: a fragment to shared memory."""
    bad = same_bits(copy.source, copy.target)
    return bad if bad is not None else matrix_plan(copy, copy.target, copy.source)


RULES = (
    "whole warps; elements of 1, 2 or 4 bytes",
    "rows of 8 x 8 matrices of 16-bit elements: 16 contiguous bytes at multiples of 16",
    "a lane holds 4 bytes of row lane / 4, or with .trans (2-byte elements) of a column",
    "x4, x2 or x1 by what the registers of a lane divide into, alike in each issue",
)
LDMATRIX = CopyInstr(
    "ldmatrix", (("smem", "rmem"),), 24, load, RULES, "ldmatrix",
    source="PTX ISA, ldmatrix", align=16, exchanges=True,
)  # fmt: skip
STMATRIX = CopyInstr(
    "stmatrix", (("rmem", "smem"),), 25, store, RULES, "stmatrix",
    source="PTX ISA, stmatrix", align=16, exchanges=True,
)  # fmt: skip
CONTRACTS = (LDMATRIX, STMATRIX)
