"""How C says an instruction, where one call says it all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CText:
    """``call`` is a function or macro of C, ``code`` its definition, written once ahead of the
    kernels that use it (empty: a header of the family has it). With ``TF_MODEL`` defined it
    must be the instruction's model in portable C.

    What it is given, by the instruction's contract; numbers are constants and count rows or
    tiles of a register file (``CopyInstr.align`` bytes each):

    - a matrix instruction on register files: those of the accumulator, of A and of B;
    - a copy of rows: that of the row and a pointer; of tiles: that of the tile, a pointer to
      its first row and the bytes from row to row;
    - any other store from registers: a pointer and a whole vector, for each; two vectors that
      are neighbours in memory by ``pair``, where there is one and they lie in one line;
    - any other load into registers, which is a plain one: a pointer as far ahead as ``prefetch``
      says, for each line; as far as its second number says, by ``near``;
    - a fill of a register file: the number of a row or tile, for each;
    - an operation on registers: the vectors of its operands, as stored; gives the result's.
    """

    call: str
    code: str = ""
    near: str = ""
    pair: str = ""
    settle: str = ""
    """A statement after which other cores see what it wrote; empty: they do anyway."""


__all__ = ["CText"]
