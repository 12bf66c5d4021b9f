"""ldmatrix and stmatrix: each lane gives the address of a row of 16 bytes."""

from __future__ import annotations

from tilefoundry.ir.mesh import Mesh
from tilefoundry.layout import Swizzle
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.cuda.emit.held import register
from tilefoundry.targets.cuda.emit.index import At, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.text import per_word
from tilefoundry.targets.cuda.instr.matrix import MatrixPlan
from tilefoundry.tir.plans import plan_of, side
from tilefoundry.tir.program import Issue, View

WARP = 32


def bit_terms(values: list[int]) -> list[tuple[int, int, int]] | None:
    """``values[n]`` for n from 0 on as values[0] and a sum over bit fields of n: (lowest bit,
    bits, what its unit adds); None if they are no such sum."""
    steps: list[tuple[int, int, int]] = []
    for bit in range((len(values) - 1).bit_length()):
        step = values[1 << bit] - values[0] if 1 << bit < len(values) else 0
        if steps and step == steps[-1][2] << steps[-1][1]:
            low, count, unit = steps[-1]
            steps[-1] = low, count + 1, unit
        else:
            steps.append((bit, 1, step))
    steps = [s for s in steps if s[2]]
    for n, value in enumerate(values):
        if values[0] + sum((n >> low & (1 << c) - 1) * unit for low, c, unit in steps) != value:
            return None
    return steps


def _text(steps: list[tuple[int, int, int]], first: int, unit: str, bits: int) -> str:
    terms: list[str] = []
    for low, count, step in steps:
        field = f"({unit} >> {low})" if low else unit
        field = field if low + count >= bits else f"({field} & {(1 << count) - 1})"
        terms.append(f"{field} * {step}" if step != 1 else field)
    if first or not terms:
        terms.append(str(first))
    return " + ".join(terms)


def move(k: Kernel, plan: MatrixPlan, held: View, memory: View, mesh: Mesh, load: bool) -> None:
    """The issues of every warp; ``held`` in registers, ``memory`` shared."""
    k.declare(held.buffer)
    found = side(memory)
    assert not isinstance(found, Unmet)
    place = found.place()
    assert not isinstance(place, Unmet)
    size = place.bits // 8
    threads = sorted(mesh.units("thread"))
    first = threads[0]

    def byte(issue: int, thread: int) -> int:
        at = plan.coordinate(issue, thread)
        return sum(int(place.along(axis, n)) for axis, n in enumerate(at)) * size  # type: ignore[arg-type]

    table = [byte(0, t) for t in threads]
    steps = bit_terms(table)
    extra = [byte(q, first) - table[0] for q in range(plan.issues)]
    uniform = threads == list(range(first, first + len(threads))) and steps is not None and all(
        byte(q, t) - extra[q] == table[n]
        for q in {0, plan.issues - 1, plan.issues // 2}
        for n, t in enumerate(threads)
    )  # fmt: skip
    if not uniform or steps is None:
        k.form(None, f"{memory}", "lanes reach its rows at no regular distance",
               "lay the fragment along the rows")  # fmt: skip
        return
    unit = f"(tid - {first})" if first else "tid"
    lane = _text(steps, table[0], unit, (len(threads) - 1).bit_length())
    base = k.dim(place.base * size) if place.base != 0 else ""
    out = k.out
    row = out.name("row")
    swizzle = place.swizzle if place.swizzle is not None and place.swizzle.B else None
    start = k.address(memory.buffer, memory.slot)
    place_of = _addresses(k, swizzle, start, row, lane, base, table, extra)
    word = "matrix_trans" if plan.trans else "matrix"
    per = per_word(held.dtype)
    numbers = [
        [_number(held, plan, (q * plan.count + m) * plan.packed) for q in range(plan.issues)]
        for m in range(plan.count)
    ]

    def body(at: At) -> None:
        words = [k.word(held, at, [n for n in mine]) for mine in numbers]
        where = place_of(at)
        if load:
            out.line(f"tf_load_{word}({', '.join(words)}, {where});")
        else:
            out.line(f"tf_store_{word}({where}, {', '.join(words)});")

    assert all(n % per == 0 for mine in numbers for n in mine), held
    each(out, plan.issues, body)


def _addresses(
    k: Kernel, swizzle: Swizzle | None, start: str, row: str, lane: str, base: str,
    table: list[int], extra: list[int],
):  # fmt: skip
    """Writes a lane's address, and says that of each issue."""
    whole = f"{base} + {lane}" if base else lane
    if swizzle is None:
        k.out.line(f"const uint32_t {row} = {start} + {whole};")
        return lambda at: f"{row} + {at.of(extra)}"
    call = f"tf_swizzle<{swizzle.B}, {swizzle.M}, {swizzle.S}>"
    apart = not base and all(x >= 0 and not x & t for x in extra for t in table)
    if apart:
        k.out.line(f"const int {row} = {call}({whole});")
        return lambda at: f"{start} + ({row} ^ ({at.of([swizzle(x) for x in extra])}))"
    k.out.line(f"const int {row} = {whole};")
    return lambda at: f"{start} + {call}({row} + {at.of(extra)})"


def _number(held: View, plan: MatrixPlan, element: int) -> int:
    """The register of the buffer that is element ``element`` of the plan's fragment."""
    return register(held.buffer, plan.fragment.of_register(element))


def emit_matrix(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    source, write = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    plan = plan_of(issue, mesh)
    assert isinstance(plan, MatrixPlan), plan
    load = write.storage == "rmem"
    move(k, plan, write if load else source, source if load else write, mesh, load)


EMITTERS = {"ldmatrix": emit_matrix, "stmatrix": emit_matrix}
