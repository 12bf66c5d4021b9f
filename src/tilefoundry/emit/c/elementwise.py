"""Operations of each lane on what it holds.

16-bit and 8-bit floats are computed in f32 and rounded once, as torch does.
"""

from __future__ import annotations

from tilefoundry.emit.c.kernel import UNROLL, Kernel
from tilefoundry.emit.c.memory import constant
from tilefoundry.emit.c.text import C, c_type, narrowed, number, wide, widened
from tilefoundry.emit.language import COMPARE
from tilefoundry.ir.dtype import BOOL, DType
from tilefoundry.ir.expr import Dim, Expr, bounds
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.program import Issue, Operand, Scalar

HALVES = ("add", "sub", "mul")
"""Operations on f16 that some processors carry out as they are: in f32, rounded once, their
results are the same bits, for 24 bits are twice 11 and 2 more."""
PAIRED = "bf16"
"""What two vectors of are rounded to at once."""
LOGIC = {"logical_and": "&", "logical_or": "|"}


def emit_elementwise(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One vector of the result from one of each operand; results that are rounded to bf16 in
    registers two at a time, which some machines round by one instruction."""
    write = issue.writes[0]
    op = str(issue.attrs.get("op", issue.instr))
    pairs = write.dtype.name == PAIRED and k.in_registers(write)
    before: tuple[tuple[Dim, ...], str] | None = None
    domain = k.domain(write)
    for at in k.each(domain):
        text, have = computed(k, op, issue, at, write.dtype)
        if not pairs or domain.size > UNROLL or have == c_type(write.dtype):
            k.put(write, at, stored(text, have, write.dtype))
        elif before is None:
            before = at, text
        else:
            both = (f"&{k.vector(write, x)}" for x in (before[0], at))
            k.out.line(f"tf_f32_to_{PAIRED}_pair({', '.join(both)}, {before[1]}, {text});")
            before = None
    if before is not None:
        k.put(write, before[0], stored(before[1], wide(write.dtype), write.dtype))


def stored(text: str, have: str, result: DType) -> str:
    """A vector computed as ``have`` as stored elements of ``result``."""
    if c_type(result) == have:
        return text
    simple = text.endswith(")") and text.startswith("tf_")
    return narrowed(text if simple else f"({text})", have, result)


def computed(
    k: Kernel, op: str, issue: Issue, at: tuple[Dim, ...], result: DType
) -> tuple[str, str]:
    """The vector of the result at ``at``, and the type that it is computed in: that of
    stored elements where it is not computed in another."""
    reads = issue.reads
    as_stored = c_type(result)
    if op == "where":
        return _where(k, reads, at, result)
    if op == "cast":
        source = reads[0].dtype
        if source is result:
            return k.value(reads[0], at), as_stored
        return _wider(widened(k.value(reads[0], at), source), wide(source), result)
    if op == "clamp":
        return _clamp(k, issue, at)
    if op in LOGIC or op == "logical_not":
        truth = [narrowed(widened(k.value(r, at), r.dtype), wide(r.dtype), BOOL) for r in reads]
        text = f"{truth[0]} ^ 1" if op == "logical_not" else (
            f"({truth[0]}) {LOGIC[op]} ({truth[1]})"
        )  # fmt: skip
        return text, "b8"
    if op in HALVES and all(x.name == "f16" for x in (result, *(r.dtype for r in reads))):
        return f"tf_{op}_f16({', '.join(k.value(r, at) for r in reads)})", as_stored
    have = C.operands(op, [r.dtype for r in reads], result)
    args = [argument(k, r, at, have) for r in reads]
    if op in COMPARE:
        return f"tf_to(b8, {args[0]} {COMPARE[op]} {args[1]}) & 1", as_stored
    text = C.expression(op, args, have, issue.attrs)
    if text is None:
        k.form(issue, f"tf.{op}", "C for CPUs has no words for it", "use another operation")
        raise AssertionError
    return _wider(text, have, result)


def _wider(text: str, have: str, result: DType) -> tuple[str, str]:
    """As the type that ``result`` is computed in, which is the one that is rounded."""
    want = wide(result)
    if have == want or result.kind == "bool":
        return text, have
    return f"tf_to({want}, {text})", want


def argument(k: Kernel, operand: Operand, at: tuple[Dim, ...], have: str) -> str:
    """An operand's vector, computed as ``have``."""
    if isinstance(operand, Scalar) and not isinstance(operand.value, Expr):
        found = constant(operand)
        return f"tf_splat_{have}({found})"
    text = widened(k.value(operand, at), operand.dtype)
    return text if wide(operand.dtype) == have else f"tf_to({have}, {text})"


def _where(
    k: Kernel, reads: tuple[Operand, ...], at: tuple[Dim, ...], result: DType
) -> tuple[str, str]:
    test = widened(k.value(reads[0], at), reads[0].dtype)
    have = wide(result)
    sides = [argument(k, r, at, have) for r in reads[1:]]
    mask = {"f32": "i32", "f64": "i64", "u8": "i8", "b8": "i8"}.get(have, have)
    kind = "u8" if have == "b8" else have
    return f"tf_pick_{kind}(tf_to({mask}, {test}) != 0, {', '.join(sides)})", have


def _clamp(k: Kernel, issue: Issue, at: tuple[Dim, ...]) -> tuple[str, str]:
    dtype = issue.reads[0].dtype
    have = wide(dtype)
    text = argument(k, issue.reads[0], at, have)
    for name, word in (("min_val", "maximum"), ("max_val", "minimum")):
        bound = issue.attrs.get(name)
        if bound is not None:
            text = f"tf_{word}_{have}({text}, tf_splat_{have}({number(bound, dtype)}))"
    return text, have


def emit_arange(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """start + i * step, exactly, then rounded once."""
    write = issue.writes[0]
    dtype = write.dtype
    start, step = issue.attrs.get("start", 0), issue.attrs.get("step", 1)
    for at in k.each(k.domain(write)):
        if isinstance(start, int | Expr) and isinstance(step, int | Expr):
            k.put(write, at, _counted(k, k.per_lane(start + at[0] * step), dtype))
            continue
        first, by = (k.dim(x) if isinstance(x, Expr) else repr(float(x)) for x in (start, step))
        terms = [f"({first}) + ({k.dim(x)}) * ({by})" for x in k.per_lane(at[0])]
        k.put(write, at, narrowed(f"((f64v){{{', '.join(terms)}}})", "f64", dtype))


def _counted(k: Kernel, lanes: tuple[Dim, ...], dtype: DType) -> str:
    """Integers, one for each lane: the first lane's, and how far the others are from it."""
    small = all(-(2**31) <= e < 2**31 for x in lanes for e in bounds(x))
    have = "i32" if small else "i64"
    steps = [x - lanes[0] for x in lanes]
    if any(isinstance(x, Expr) for x in steps):
        text = f"(({have}v){{{', '.join(k.dim(x) for x in lanes)}}})"
    else:
        text = f"(tf_splat_{have}({k.dim(lanes[0])}) + ({have}v){{{', '.join(map(str, steps))}}})"
    if dtype.is_float and dtype.bits < 64 and not small:
        text, have = f"tf_to(f64, {text})", "f64"
    return narrowed(text, have, dtype)


EMITTERS = {
    **dict.fromkeys(("unary", "binary", "fma", "cast", "clamp", "where", "relu"), emit_elementwise),
    "arange": emit_arange,
}
