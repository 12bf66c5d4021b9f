"""Words of Apple's matrix coprocessor: the instruction, and the operand in its register.

After corsix/amx (public reverse engineering; aarch64.md, ldst.md, fma.md, setclr.md). An
instruction is a reserved A64 word with the operation in bits 5 to 9 and a general register in
bits 0 to 4; everything else is said by the 64 bits in that register.
"""

from __future__ import annotations

BASE = 0x0020_1000
OPS = {
    "ldx": 0, "ldy": 1, "stx": 2, "sty": 3, "ldz": 4, "stz": 5, "ldzi": 6, "stzi": 7,
    "fma64": 10, "fma32": 12, "fma16": 15,
}  # fmt: skip
SWITCH = 17
"""The operation that turns the unit on and off; its low bits are 0 and 1."""
SET, CLR = BASE | SWITCH << 5, BASE | SWITCH << 5 | 1
ROWS = {"ldx": 8, "stx": 8, "ldy": 8, "sty": 8, "ldz": 64, "stz": 64, "ldzi": 64, "stzi": 64}


def word(op: str, register: int) -> int:
    """The 32 bits of ``op`` with its operand in general register ``register`` (0 to 30)."""
    assert 0 <= register <= 30, register
    return BASE | OPS[op] << 5 | register


def move(op: str, row: int, pointer: int = 0, pair: bool = False) -> int:
    """The operand of a load or store of row ``row``: for ldzi and stzi twice the number of
    the pair of rows, plus 1 for its right half. ``pair`` moves two rows at once."""
    assert 0 <= row < ROWS[op] and 0 <= pointer < 1 << 56, (op, row)
    return pointer | row << 56 | int(pair) << 62


def fma(
    x: int = 0,
    y: int = 0,
    z: int = 0,
    *,
    vector: bool = False,
    wide: bool = False,
    skip: tuple[bool, bool, bool] = (False, False, False),
) -> int:
    """The operand of fma16, fma32 and fma64: byte offsets into X and Y, first row of Z.

    ``vector``: one row of Z by elements instead of an outer product; ``wide``: fma16 adds to
    f32 in all of Z; ``skip``: inputs X, Y, Z that do not count (all three: zeros).
    """
    assert 0 <= x < 512 and 0 <= y < 512 and 0 <= z < 64
    without_x, without_y, without_z = skip
    return (
        y | x << 10 | z << 20
        | int(without_z) << 27 | int(without_y) << 28 | int(without_x) << 29
        | int(wide) << 62 | int(vector) << 63
    )  # fmt: skip


ZEROS = (True, True, True)
