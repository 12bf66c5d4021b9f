"""Reductions: of what a thread holds, over lanes by shuffles, over warps through shared
memory, over CTAs through global memory.

Sums of 16-bit floats are added in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.targets.cuda.emit import cluster
from tilefoundry.targets.cuda.emit.held import Domain, numeric, register
from tilefoundry.targets.cuda.emit.index import At, NoFit, Turn, each
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.operands import (
    Reader,
    Registers,
    assign,
    reader,
)
from tilefoundry.targets.cuda.emit.text import C_TYPES, CUDA, converted, fit, wide
from tilefoundry.tir.program import Issue, View, reach

WAYS = 4
"""Independent sums, so that additions do not wait for one another."""
WARP = 32
EXTREMES = {"min": "minimum", "max": "maximum", "abs_max": "maximum"}


def emit_reduce(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    if reach(issue):
        cluster.combine(k, issue)
    elif issue.attrs.get("op") == "combine":
        _combine(k, issue, mesh)
    elif issue.attrs.get("scope") is not None:
        k.form(issue, "a reduction of terms and over units at once", "it is two steps",
               "reduce first, then complete the partial value")  # fmt: skip
    else:
        _local(k, issue)


def _local(k: Kernel, issue: Issue) -> None:
    """A thread's own elements."""
    (source,) = (r for r in issue.reads if isinstance(r, View))
    write = issue.writes[0]
    kind = str(issue.attrs.get("kind", "sum"))
    gone = {a % len(source.shape) for a in issue.attrs["axes"]}
    have = CUDA.accumulator(kind, source.dtype, write.dtype)
    over, of = _terms(k, source, write, gone)
    from_ = reader(k, source, over)
    target = k.held(write)
    count = prod(source.shape[n] for n in gone)
    place = {number: q for q, number in enumerate(target.registers)}
    totals: dict[int, str] = {}
    for number, turns in sorted(of.items()):
        name = k.out.name("total")
        _sum(k, kind, have, from_, turns, name)
        totals[place[number]] = f"{name} / {count}" if kind == "mean" else name
    for q in range(target.size):
        assert q in totals, issue

    _written_out(k, write, target, totals, have)


def _written_out(k: Kernel, write: View, target: Domain, values: dict[int, str], have: str) -> None:
    """Each register from a value of its own."""

    def compute(at: At, turns: Sequence[int]) -> tuple[str, str]:
        if not isinstance(at, Turn):
            raise NoFit
        return values[turns[at.n]], have

    assign(k, write, target, compute)


def _terms(
    k: Kernel, source: View, write: View, gone: set[int]
) -> tuple[Domain, dict[int, list[int]]]:
    """The elements to reduce, and for each register of the result the numbers of its terms."""
    keep = len(write.shape) == len(source.shape)
    out = numeric(write)
    of: dict[int, list[int]] = {}

    def number(at: Sequence[int]) -> int:
        kept = tuple(0 if n in gone else x for n, x in enumerate(at) if keep or n not in gone)
        return register(write.buffer, out(kept))

    if source.storage == "rmem":
        over = k.held(source)
        for q, at in enumerate(over.at):
            of.setdefault(number(at), []).append(q)
        return over, of
    held = k.held(write)
    axes = [n for n in range(len(source.shape)) if n not in gone]
    places: list[tuple[int, ...]] = []
    for at in held.at:
        for turn in product(*(range(source.shape[n]) for n in sorted(gone))):
            full = [0] * len(source.shape)
            for axis, n in zip(axes, [at[a] for a in axes] if keep else at, strict=True):
                full[axis] = n
            for axis, n in zip(sorted(gone), turn, strict=True):
                full[axis] = n
            of.setdefault(number(full), []).append(len(places))
            places.append(tuple(full))
    base: list[Dim] = [0] * len(source.shape)
    last = [0] * len(source.shape)
    for n, axis in enumerate(axes):
        base[axis] = held.base[axis if keep else n]
        last[axis] = held.last[axis if keep else n]
    return Domain(tuple(places), tuple(range(len(places))), tuple(base), tuple(last)), of


def _sum(k: Kernel, kind: str, have: str, from_: Reader, turns: list[int], name: str) -> None:
    """``name``: the terms ``turns`` of ``from_`` as one."""
    out, kind_ = k.out, C_TYPES[have]
    if kind in EXTREMES and _packed(k, kind, from_, turns, name):
        return

    def term(at: At, mine: Sequence[int]) -> str:
        text = converted(from_.wide(at, mine), wide(from_.dtype), have)
        return f"tf_abs({text})" if kind == "abs_max" and have != "bool" else text

    ways = WAYS if len(turns) >= 2 * WAYS and len(turns) % WAYS == 0 else 1
    names = [name] if ways == 1 else [out.name(f"{name}_{w}") for w in range(ways)]
    for w, part in enumerate(names):
        out.line(f"{kind_} {part} = {term(Turn(0), [turns[w]])};")
    parts = [turns[w::ways][1:] for w in range(ways)]

    def body(at: At) -> None:
        for part, mine in zip(names, parts, strict=True):
            out.line(f"{part} = {CUDA.joined(kind, part, term(at, mine))};")

    if parts[0]:
        each(out, len(parts[0]), body)
    while len(names) > 1:
        pairs = zip(names[::2], names[1::2], strict=True)
        names = [f"({CUDA.joined(kind, a, b)})" for a, b in pairs]
    if names[0] != name:
        out.line(f"const {kind_} {name} = {names[0]};")


def _packed(k: Kernel, kind: str, from_: Reader, turns: list[int], name: str) -> bool:
    """An extreme of 16-bit floats, two at once where the terms are whole words."""
    if not isinstance(from_, Registers) or not (from_.dtype.is_float and from_.dtype.bits == 16):
        return False
    found = from_.words([turns[0::2], turns[1::2]]) if len(turns) % 2 == 0 else None
    if found is None:
        return False
    word, type = EXTREMES[kind], from_.dtype.name

    def term(at: At, mine: Sequence[int]) -> str:
        text = k.word(from_.view, at, [*mine])
        return f"({text} & 0x7fff7fffu)" if kind == "abs_max" else text

    ways = WAYS if len(found) >= 2 * WAYS and len(found) % WAYS == 0 else 1
    names = [k.out.name(f"{name}_{w}") for w in range(ways)]
    for w, part in enumerate(names):
        k.out.line(f"uint32_t {part} = {term(Turn(0), [found[w]])};")
    parts = [found[w::ways][1:] for w in range(ways)]

    def body(at: At) -> None:
        for part, mine in zip(names, parts, strict=True):
            k.out.line(f"{part} = tf_{word}_{type}({part}, {term(at, mine)});")

    if parts[0]:
        each(k.out, len(parts[0]), body)
    for part in names[1:]:
        k.out.line(f"{names[0]} = tf_{word}_{type}({names[0]}, {part});")
    lo, hi = (f"tf_{type}_at<{n}>({names[0]})" for n in range(2))
    k.out.line(f"const float {name} = tf_{word}({lo}, {hi});")
    return True


# Over units


@dataclass(frozen=True)
class _Part:
    """Of a thread axis what one way of meeting combines: coordinate // inner % extent."""

    axis: Axis
    inner: int
    extent: int

    def text(self, k: Kernel) -> str:
        name = k.names[self.axis]
        name = f"{name} / {self.inner}" if self.inner > 1 else name
        whole = self.inner * self.extent == self.axis.extent
        return name if whole else f"{name} % {self.extent}"


def _combine(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """Lanes of a warp first, then warps of a CTA, then CTAs."""
    (source,) = (r for r in issue.reads if isinstance(r, View))
    write = issue.writes[0]
    kind = str(issue.attrs.get("kind", "sum"))
    kind = "max" if kind == "abs_max" else kind
    have = CUDA.accumulator(kind, source.dtype, write.dtype)
    over: tuple[Axis, ...] = issue.attrs["over"]
    domain = k.held(write)
    from_ = reader(k, source, domain)
    kind_, count = C_TYPES[have], domain.size
    terms = k.out.name("terms")
    k.out.line(f"{kind_} {terms}[{count}];")

    def gather(at: At) -> None:
        text = converted(from_.wide(at, range(count)), wide(from_.dtype), have)
        k.out.line(f"{terms}[{at.of(range(count))}] = {text};")

    each(k.out, count, gather)
    lanes, rest = _split([a for a in over if a.level == "thread"])
    _shuffles(k, kind, terms, count, lanes)
    if rest:
        _through_shared(k, issue, mesh, kind, have, terms, count, lanes, rest)
    outer = [a for a in over if a.level != "thread" and a.extent > 1]
    if outer:
        _through_global(k, issue, mesh, kind, have, terms, count, lanes, rest, outer)
    assign(k, write, domain, lambda at, turns: (f"{terms}[{at.of(turns)}]", have))


def _split(axes: list[Axis]) -> tuple[list[_Part], list[_Part]]:
    """What lies inside a warp, and what does not."""
    lanes: list[_Part] = []
    rest: list[_Part] = []
    for a in axes:
        inside = 1
        bits = a.stride & (a.stride - 1) == 0
        while bits and a.extent % (2 * inside) == 0 and a.stride * 2 * inside <= WARP:
            inside *= 2
        if a.offset % WARP:
            inside = 1
        if inside > 1:
            lanes.append(_Part(a, 1, inside))
        if a.extent > inside:
            rest.append(_Part(a, inside, a.extent // inside))
    return lanes, rest


def _shuffles(k: Kernel, kind: str, terms: str, count: int, lanes: list[_Part]) -> None:
    """Butterflies: every lane ends with the combined value."""
    for part in lanes:
        step = part.extent // 2
        while step:
            distance = step * part.axis.stride

            def body(at: At, distance: int = distance) -> None:
                mine = f"{terms}[{at.of(range(count))}]"
                other = f"__shfl_xor_sync(0xffffffff, {mine}, {distance})"
                k.out.line(f"{mine} = {CUDA.joined(kind, mine, other)};")

            each(k.out, count, body)
            step //= 2


def _barrier(k: Kernel, mesh: Mesh) -> None:
    """All participants of one CTA meet."""
    units = frozenset(mesh.units("thread"))
    if len(units) == k.threads:
        k.out.line(f"tf_barrier<0, {k.threads}>();")
        return
    if units not in k.group_barriers:
        if not k.free_barriers:
            k.form(None, "a reduction of a part of the threads", "all named barriers are taken",
                   "let all threads reduce")  # fmt: skip
        k.group_barriers[units] = k.free_barriers.pop()
    k.out.line(f"tf_barrier<{k.group_barriers[units]}, {len(units)}>();")


def _read(k: Kernel, mesh: Mesh) -> None:
    """All have read the scratch of a reduction, which has it to itself: what writes there next is
    the loop's next step, if there is a loop."""
    if k.loops:
        _barrier(k, mesh)


def _number(k: Kernel, parts: Sequence[_Part]) -> str:
    """The parts' values as one number."""
    text = "0"
    for p in parts:
        text = p.text(k) if text == "0" else f"({text}) * {p.extent} + {p.text(k)}"
    return text


def _kept(mesh: Mesh, over: Sequence[Axis], level: bool) -> list[_Part]:
    """The axes of threads (or of what is around them) along which units do not meet."""
    return [_Part(a, 1, a.extent) for a in mesh.axes
            if (a.level == "thread") == level and a not in over and a.extent > 1]  # fmt: skip


def _through_shared(
    k: Kernel, issue: Issue, mesh: Mesh, kind: str, have: str, terms: str, count: int,
    lanes: list[_Part], rest: list[_Part],
) -> None:  # fmt: skip
    over: tuple[Axis, ...] = issue.attrs["over"]
    kept = _kept(mesh, over, level=True)
    meet = prod(p.extent for p in rest)
    out, kind_ = k.out, C_TYPES[have]
    memory = k.shared(issue.attrs["scratch"], 0)
    table = out.name("table")
    out.line(f"{kind_} *{table} = ({kind_} *)({memory}) + ({_number(k, kept)}) * {meet * count};")
    first = " && ".join(f"{p.text(k)} == 0" for p in lanes) or "true"
    own = f"({_number(k, rest)}) * {count}" if count > 1 else f"{_number(k, rest)}"
    with out.block(f"if ({first})"):
        places = range(count)
        each(out, count, lambda at: out.line(
            f"{table}[{own} + {at.of(places)}] = {terms}[{at.of(places)}];"))  # fmt: skip
    _barrier(k, mesh)
    _collect(k, kind, terms, count, meet, lambda n, i: f"{table}[({n}) * {count} + {i}]")
    _read(k, mesh)


def _collect(k: Kernel, kind: str, terms: str, count: int, meet: int, at: object) -> None:
    """The terms of all that meet, in their order."""
    place = at
    out = k.out
    for i in range(count):
        out.line(f"{terms}[{i}] = {place('0', i)};")  # type: ignore[operator]
    out.line("#pragma unroll")
    with out.block(f"for (int n = 1; n < {meet}; n++)"):

        def more(t: At) -> None:
            mine, number = f"{terms}[{t.of(range(count))}]", t.of(range(count))
            out.line(f"{mine} = {CUDA.joined(kind, mine, place('n', number))};")  # type: ignore[operator]

        each(out, count, more)


def _through_global(
    k: Kernel, issue: Issue, mesh: Mesh, kind: str, have: str, terms: str, count: int,
    lanes: list[_Part], rest: list[_Part], outer: list[Axis],
) -> None:  # fmt: skip
    """One partial value of each CTA, a counter of each group of CTAs that meet."""
    over: tuple[Axis, ...] = issue.attrs["over"]
    kept = _kept(mesh, over, level=True)
    groups = _kept(mesh, over, level=False)
    held = prod(p.extent for p in kept)
    out, kind_ = k.out, C_TYPES[have]
    memory = k.names[issue.attrs["workspace"]]
    size = 8 if have in ("f64", "i64") else 4
    table, counter = out.name("table"), out.name("counter")
    number = _number(k, kept)
    own = f"({number}) * {count}" if kept else "0"
    out.line(f"{kind_} *{table} = ({kind_} *){memory} + {own};")
    out.line(f"unsigned *{counter} = (unsigned *)({memory} + {k.grid * held * count * size})"
             f" + {_number(k, groups)};")  # fmt: skip
    writers = [
        p for p in (_Part(a, 1, a.extent) for a in over if a.level == "thread") if p.extent > 1
    ]
    test = " && ".join(f"{p.text(k)} == 0" for p in writers) or "true"
    each_cta = held * count
    with out.block(f"if ({test})"):
        each(out, count, lambda at: out.line(
            f"__stcg(&{table}[blockIdx.x * {each_cta} + {at.of(range(count))}], "
            f"{terms}[{at.of(range(count))}]);"))  # fmt: skip
        out.line("__threadfence();")
    _barrier(k, mesh)
    first = mesh.units("thread")[0]
    meet = prod(a.extent for a in outer)
    out.line(f"if (tid == {first}) tf_meet({counter}, {meet});")
    _barrier(k, mesh)
    offsets = _offsets(k, outer)
    start = "blockIdx.x"
    for a in outer:
        start += f" - {k.names[a]} * {_stride(k, a)}"
    begin = out.name("begin")
    out.line(f"const int {begin} = {start};")
    place = fit(offsets, "n")
    if place is None or meet < WARP or prod(p.extent for p in lanes) < WARP:
        _all(k, kind, terms, count, offsets, lambda n, i: (
            f"__ldcg(&{table}[({begin} + {n}) * {each_cta} + {i}])"))  # fmt: skip
    else:
        ahead = f"{table}[({begin} + {place}) * {each_cta}"
        test = " && ".join(f"{p.text(k)} == 0" for p in rest) or "true"
        with out.block(f"if ({test})"):
            _by_lanes(k, kind, terms, count, meet, lambda i: f"__ldcg(&{ahead} + {i}])")
        if rest:
            _told(k, issue, mesh, have, terms, count, lanes, rest)
    if k.loops:
        _barrier(k, mesh)
        out.line(
            f"if (tid == {first}) tf_meet({counter}, {meet});  // the next meeting writes there"
        )
        _barrier(k, mesh)


def _all(
    k: Kernel, kind: str, terms: str, count: int, offsets: list[int],
    value: Callable[[object, int], str],
) -> None:  # fmt: skip
    """Each thread combines what all CTAs have, in their order."""
    for i in range(count):
        k.out.line(f"{terms}[{i}] = {value(offsets[0], i)};")
    turns = offsets[1:]

    def body(at: At) -> None:
        for i in range(count):
            mine = f"{terms}[{i}]"
            k.out.line(f"{mine} = {CUDA.joined(kind, mine, value(at.of(turns), i))};")

    if turns:
        each(k.out, len(turns), body)


def _by_lanes(
    k: Kernel, kind: str, terms: str, count: int, meet: int, value: Callable[[int], str]
) -> None:
    """A warp combines what ``meet`` CTAs have, at least one for each lane: were it each thread of
    all of them, so many reads of the same few lines would take longer than all else."""
    out = k.out
    with out.block(f"for (int n = tid % {WARP}; n < {meet}; n += {WARP})"):
        for i in range(count):
            mine = f"{terms}[{i}]"
            more = CUDA.joined(kind, mine, value(i))
            out.line(f"{mine} = n < {WARP} ? {value(i)} : {more};")
    distance = WARP // 2
    while distance:
        for i in range(count):
            mine = f"{terms}[{i}]"
            other = f"__shfl_xor_sync(0xffffffff, {mine}, {distance})"
            out.line(f"{mine} = {CUDA.joined(kind, mine, other)};")
        distance //= 2


def _told(
    k: Kernel, issue: Issue, mesh: Mesh, have: str, terms: str, count: int, lanes: list[_Part],
    rest: list[_Part],
) -> None:  # fmt: skip
    """What one warp of those that hold the same has, to the others."""
    kept = _kept(mesh, issue.attrs["over"], level=True)
    out, kind = k.out, C_TYPES[have]
    told = out.name("told")
    memory = k.shared(issue.attrs["scratch"], 0)
    out.line(f"{kind} *{told} = ({kind} *)({memory}) + ({_number(k, kept)}) * {count};")
    test = " && ".join(f"{p.text(k)} == 0" for p in (*lanes, *rest))
    places = range(count)
    with out.block(f"if ({test})"):
        each(out, count, lambda at: out.line(
            f"{told}[{at.of(places)}] = {terms}[{at.of(places)}];"))  # fmt: skip
    _barrier(k, mesh)
    each(out, count, lambda at: out.line(f"{terms}[{at.of(places)}] = {told}[{at.of(places)}];"))
    _read(k, mesh)


def _stride(k: Kernel, a: Axis) -> int:
    """How far neighbours along an axis are in blockIdx.x."""
    step = 1
    for level, size in reversed(k.sizes.items()):
        if level == a.level:
            break
        if level != "thread":
            step *= size
    return a.stride * step


def _offsets(k: Kernel, axes: list[Axis]) -> list[int]:
    out = [0]
    for a in axes:
        out = [o + n * _stride(k, a) for o in out for n in range(a.extent)]
    return out


EMITTERS = {"reduce": emit_reduce}
