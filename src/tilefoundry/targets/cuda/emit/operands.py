"""Operands by element, and results by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Expr
from tilefoundry.targets.cuda.emit.held import Domain
from tilefoundry.targets.cuda.emit.index import At, Turn, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.memory import Access
from tilefoundry.targets.cuda.emit.text import (
    C_TYPES,
    from_word,
    literal,
    per_word,
    to_word,
    wide,
)
from tilefoundry.tir.program import Operand, Scalar, View

Turns = Sequence[int]


class Reader(Protocol):
    """An operand's elements over a domain, widened; ``turns`` are their numbers there."""

    dtype: DType

    def wide(self, at: At, turns: Turns) -> str: ...


class Constant:
    """A number or an index expression."""

    def __init__(self, k: Kernel, operand: Scalar) -> None:
        self.dtype = operand.dtype
        value = operand.value
        self.text = (
            f"({C_TYPES[wide(operand.dtype)]})({k.dim(value)})"
            if isinstance(value, Expr)
            else literal(value, operand.dtype)
        )
        self.value = None if isinstance(value, Expr) else value

    def wide(self, at: At, turns: Turns) -> str:
        return self.text


class Registers:
    """A value in the thread's registers."""

    def __init__(self, k: Kernel, view: View, over: Domain) -> None:
        self.k, self.view, self.dtype = k, view, view.dtype
        self.numbers = k.registers(view, over)
        self.per = per_word(view.dtype)

    def wide(self, at: At, turns: Turns) -> str:
        mine = [self.numbers[q] for q in turns]
        lane = at.same([n % self.per for n in mine])
        return from_word(self.dtype, self.k.word(self.view, at, mine), lane)

    def words(self, lanes: Sequence[Turns]) -> list[int] | None:
        """The registers of lane 0 where all lanes together are the words they lie in."""
        mine = [[self.numbers[q] for q in turns] for turns in lanes]
        whole = all(
            group[0] % self.per == 0 and group == tuple(range(group[0], group[0] + self.per))
            for group in zip(*mine, strict=True)
        )
        return mine[0] if whole else None


class Stored:
    """A value in shared or global memory."""

    def __init__(self, k: Kernel, view: View, over: Domain) -> None:
        self.dtype = view.dtype
        self.access = Access(k, view, over)

    def wide(self, at: At, turns: Turns) -> str:
        return self.access.wide(at, turns)


def reader(k: Kernel, operand: Operand, over: Domain) -> Reader:
    if isinstance(operand, Scalar):
        return Constant(k, operand)
    if operand.storage == "rmem":
        return Registers(k, operand, over)
    return Stored(k, operand, over)


Compute = Callable[[At, Turns], tuple[str, str]]
"""The value of the elements ``turns``: text, and the type it is computed in."""


def assign(
    k: Kernel, write: View, over: Domain, compute: Compute,
    packed: Callable[[At, Sequence[Turns]], str | None] | None = None, group: int = 1,
) -> None:  # fmt: skip
    """Writes each element of ``over``, a word at a time; ``packed`` may say a word at once.
    A turn of the loop takes ``group`` elements where operands have so many in a word."""
    per, numbers = per_word(write.dtype), over.registers
    group = max(group, per)
    whole = len(numbers) // group
    dense = all(
        numbers[q] % per == 0 and all(numbers[q + j] == numbers[q] + j for j in range(per))
        for q in range(0, whole * group, per)
    )
    if not dense:
        for q, number_ in enumerate(numbers):
            text, have = compute(Turn(0), [q])
            word = k.word(write, Turn(0), [number_])
            bits, lane = write.dtype.bits, number_ % per
            k.out.line(f"tf_put<{bits}, {lane}>({word}, {to_word(write.dtype, have, [text])});")
        return

    def put(at: At, lanes: list[list[int]]) -> None:
        target = k.word(write, at, [numbers[q] for q in lanes[0]])
        if packed is not None and len(lanes) == per:
            text = packed(at, lanes)
            if text is not None:
                k.out.line(f"{target} = {text};")
                return
        parts = [compute(at, turns) for turns in lanes]
        text = to_word(write.dtype, parts[0][1], [p for p, _ in parts])
        k.out.line(f"{target} = {text};")

    def body(at: At) -> None:
        for word in range(0, group, per):
            lanes = [[i * group + word + j for i in range(whole)] for j in range(per)]
            put(at, lanes)

    if whole:
        each(k.out, whole, body)
    for q in range(whole * group, len(numbers), per):
        put(Turn(0), [[n] for n in range(q, min(q + per, len(numbers)))])


def most(readers: Sequence[Reader]) -> int:
    """Elements in a word of the operand that has most of them."""
    return max((r.per for r in readers if isinstance(r, Registers)), default=1)
