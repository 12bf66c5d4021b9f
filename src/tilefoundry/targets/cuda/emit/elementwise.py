"""Operations of each thread on what it holds.

16-bit and 8-bit floats are computed in f32 and rounded once, as torch does; sums, differences,
products and extremes of two 16-bit floats as packed instructions, which give the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilefoundry.emit.language import COMPARE
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.cuda.emit.held import count
from tilefoundry.targets.cuda.emit.index import At
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.operands import Reader, Registers, Turns, assign, most, reader
from tilefoundry.targets.cuda.emit.text import C_TYPES, CUDA, converted, literal, wide
from tilefoundry.tir.program import Issue, View

LOGIC = {"logical_and": "&&", "logical_or": "||"}
PACKED = ("add", "sub", "mul", "minimum", "maximum")


def emit_elementwise(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """Each word of the result from its elements' operands."""
    write = issue.writes[0]
    op = str(issue.attrs.get("op", issue.instr))
    over = k.held(write)
    readers = [reader(k, r, over) for r in issue.reads]

    _again(k, op, issue)

    def compute(at: At, turns: Turns) -> tuple[str, str]:
        return _computed(k, op, issue, readers, at, turns)

    def packed(at: At, lanes: Sequence[Turns]) -> str | None:
        return _packed(k, op, issue, readers, at, lanes)

    assign(k, write, over, compute, packed, most(readers))


def _again(k: Kernel, op: str, issue: Issue) -> None:
    """What a program computes a second time from the same registers is computed again: the
    compiler would keep the first results, and the author has chosen otherwise."""
    held = tuple(r.buffer for r in issue.reads if isinstance(r, View) and r.storage == "rmem")
    key = (op, held)
    if key in k.computed:
        for buffer in dict.fromkeys(held):
            if count(buffer) > 1:
                k.out.line(f"tf_renew({k.names[buffer]});")
    k.computed.add(key)


def _computed(
    k: Kernel, op: str, issue: Issue, readers: list[Reader], at: At, turns: Turns
) -> tuple[str, str]:
    result = issue.writes[0].dtype
    if op == "cast":
        have = wide(readers[0].dtype)
        return readers[0].wide(at, turns), have
    if op == "where":
        have = wide(result)
        sides = [_argument(r, at, turns, have) for r in readers[1:]]
        test = converted(readers[0].wide(at, turns), wide(readers[0].dtype), "bool")
        return f"({test} ? {sides[0]} : {sides[1]})", have
    if op == "clamp":
        return _clamp(issue, readers[0], at, turns)
    if op in LOGIC or op == "logical_not":
        truth = [converted(r.wide(at, turns), wide(r.dtype), "bool") for r in readers]
        return (
            f"!{truth[0]}" if op == "logical_not" else f"({f' {LOGIC[op]} '.join(truth)})",
            "bool",
        )
    have = CUDA.operands(op, [r.dtype for r in readers], result)
    args = [_argument(r, at, turns, have) for r in readers]
    if op in COMPARE:
        return f"{args[0]} {COMPARE[op]} {args[1]}", "bool"
    text = CUDA.expression(op, args, have, issue.attrs)
    if text is None:
        k.form(issue, f"tf.{op}", "CUDA has no words for it yet", "use another operation")
        raise AssertionError
    return text, have


def _argument(r: Reader, at: At, turns: Turns, have: str) -> str:
    return converted(r.wide(at, turns), wide(r.dtype), have)


def _clamp(issue: Issue, source: Reader, at: At, turns: Turns) -> tuple[str, str]:
    have = wide(source.dtype)
    text = source.wide(at, turns)
    for name, word in (("min_val", "maximum"), ("max_val", "minimum")):
        bound = issue.attrs.get(name)
        if bound is not None:
            text = f"tf_{word}({text}, {literal(bound, source.dtype)})"
    return text, have


def _packed(
    k: Kernel, op: str, issue: Issue, readers: list[Reader], at: At, lanes: Sequence[Turns]
) -> str | None:
    """Two 16-bit floats at once, where both operands are words as the result is."""
    dtype = issue.writes[0].dtype
    if not (dtype.is_float and dtype.bits == 16 and op in (*PACKED, "square", "cast")):
        return None
    words: list[str] = []
    for r in readers:
        if not isinstance(r, Registers) or r.dtype is not dtype:
            return None
        found = r.words(lanes)
        if found is None:
            return None
        words.append(k.word(r.view, at, found))
    if op == "cast":
        return words[0]
    if op == "square":
        words, op = [words[0], words[0]], "mul"
    return f"tf_{op}_{dtype.name}({', '.join(words)})"


def emit_arange(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """start + i * step, rounded once."""
    write = issue.writes[0]
    over = k.held(write)
    start, step = issue.attrs.get("start", 0), issue.attrs.get("step", 1)
    have = "f64" if write.dtype.is_float else wide(write.dtype)
    first, by = (k.dim(x) if isinstance(x, Expr) else repr(x) for x in (start, step))
    index = k.dim(over.base[0])

    def compute(at: At, turns: Turns) -> tuple[str, str]:
        number_ = at.of([over.at[q][0] for q in turns])
        place = f"{index} + {number_}" if index != "0" else number_
        place = f"({place})" if have == "i32" else f"({C_TYPES[have]})({place})"
        place = place if by == "1" else f"{place} * ({by})"
        return f"({first}) + {place}", have

    assign(k, write, over, compute)


EMITTERS = {
    **dict.fromkeys(("unary", "binary", "fma", "cast", "clamp", "where", "relu"), emit_elementwise),
    "arange": emit_arange,
}
