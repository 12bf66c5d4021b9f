"""Reductions: of what each lane holds, over the lanes of a core, over cores.

Sums of 16-bit floats are added in f32 and rounded once. Terms are added in pairs, or in
``WAYS`` independent sums, so that additions do not wait for one another.
"""

from __future__ import annotations

from contextlib import ExitStack

from tilefoundry.emit.c.held import count, register
from tilefoundry.emit.c.kernel import UNROLL, Domain, Kernel
from tilefoundry.emit.c.text import C, narrowed, wide, widened
from tilefoundry.ir.dtype import BOOL
from tilefoundry.ir.expr import Dim, Sym, substitute
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.program import Issue, View

WAYS = 4
START = {"sum": "0", "mean": "0", "prod": "1", "any": "0", "all": "1", "abs_max": "0"}


def term(k: Kernel, kind: str, view: View, at: tuple[Dim, ...], have: str) -> str:
    text = widened(k.value(view, at), view.dtype)
    if kind in ("any", "all"):
        return f"({narrowed(text, wide(view.dtype), BOOL)})"
    if wide(view.dtype) != have:
        text = f"tf_to({have}, {text})"
    return f"tf_abs_{have}({text})" if kind == "abs_max" and have[0] != "u" else text


def emit_reduce(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    if issue.attrs.get("op") == "combine":
        _combine(k, issue, mesh)
    elif issue.attrs.get("scope") is not None:
        k.form(issue, "a reduction of terms and over units at once", "it is two steps",
               "reduce first, then complete the partial value")  # fmt: skip
    else:
        _local(k, issue)


def _local(k: Kernel, issue: Issue) -> None:
    """Each lane's own elements."""
    (source,) = (r for r in issue.reads if isinstance(r, View))
    write = issue.writes[0]
    kind = str(issue.attrs.get("kind", "sum"))
    gone = {a % len(source.shape) for a in issue.attrs["axes"]}
    keep = len(write.shape) == len(source.shape)
    have = C.accumulator(kind, source.dtype, write.dtype)
    domain = k.domain(source)
    outer, inner = _split(domain, gone)
    terms = 1
    for axis in gone:
        terms *= source.shape[axis]
    small = domain.size <= UNROLL
    for at in k.each(outer, UNROLL if small else 0):
        env: dict[Sym, Dim] = dict(zip(outer.vars, _values(at, outer), strict=True))
        place = at[: len(source.shape)]
        kept = tuple(0 if n in gone else x for n, x in enumerate(place) if keep or n not in gone)
        inside = Domain(inner.segments, inner.vars, tuple(substitute(x, env) for x in domain.at))
        total = _tree(k, kind, source, inside, have) if small else (
            _loops(k, kind, source, inside, have)
        )  # fmt: skip
        if kind == "mean":
            total = f"({total}) / {terms}"
        k.put(write, kept, narrowed(f"({total})", have, write.dtype))


def _split(domain: Domain, gone: set[int]) -> tuple[Domain, Domain]:
    """The kept part of a domain (its coordinates are its variables'), and the reduced one."""
    kept = [n for n, s in enumerate(domain.segments) if s.dim not in gone]
    rest = [n for n, s in enumerate(domain.segments) if s.dim in gone]
    zero: dict[Sym, Dim] = {domain.vars[n]: 0 for n in rest}
    outer = Domain(
        tuple(domain.segments[n] for n in kept),
        tuple(domain.vars[n] for n in kept),
        (*(substitute(x, zero) for x in domain.at), *(domain.vars[n].expr() for n in kept)),
    )
    inner = Domain(
        tuple(domain.segments[n] for n in rest), tuple(domain.vars[n] for n in rest), domain.at
    )
    return outer, inner


def _values(at: tuple[Dim, ...], outer: Domain) -> tuple[Dim, ...]:
    """What the variables of ``outer`` are at one of its points."""
    return at[len(at) - len(outer.vars) :] if outer.vars else ()


def _tree(k: Kernel, kind: str, source: View, inside: Domain, have: str) -> str:
    level = [term(k, kind, source, at, have) for at in k.each(inside)]
    while len(level) > 1:
        pairs = [
            C.joined(kind, *level[n : n + 2], have) if n + 1 < len(level) else level[n]
            for n in range(0, len(level), 2)
        ]
        level = [p if p.startswith("tf_") or len(pairs) == 1 else f"({p})" for p in pairs]
    return level[0]


def _loops(k: Kernel, kind: str, source: View, inside: Domain, have: str) -> str:
    """Loops with several accumulators; returns their combination."""
    last = inside.segments[-1].extent if inside.segments else 1
    ways = next(w for w in (WAYS, 2, 1) if last % w == 0)
    name = k.out.name("acc")
    first = START.get(kind) or ("INFINITY" if kind == "min" else "-INFINITY")
    if first[-1] == "Y" and have not in ("f32", "f64"):
        zero: dict[Sym, Dim] = dict.fromkeys(inside.vars, 0)
        start = term(k, kind, source, tuple(substitute(x, zero) for x in inside.at), have)
    else:
        start = f"tf_splat_{have}({first})"
    k.out.line(f"{have}v {name}[{ways}] = {{{', '.join([start] * ways)}}};")
    with ExitStack() as stack:
        for n, (var, segment) in enumerate(zip(inside.vars, inside.segments, strict=True)):
            step = ways if n + 1 == len(inside.vars) else 1
            stack.enter_context(k.loop(var, segment.extent, step))
        for way in range(ways):
            env: dict[Sym, Dim] = {inside.vars[-1]: inside.vars[-1].expr() + way} if way else {}
            at = tuple(substitute(x, env) for x in inside.at)
            more = C.joined(kind, f"{name}[{way}]", term(k, kind, source, at, have), have)
            k.out.line(f"{name}[{way}] = {more};")
    total = [f"{name}[{n}]" for n in range(ways)]
    while len(total) > 1:
        total = [
            f"({C.joined(kind, a, b, have)})" for a, b in zip(total[::2], total[1::2], strict=True)
        ]
    return total[0]


def _combine(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """A partial value over lanes, by exchanging halves; then over cores, through memory."""
    (source,) = (r for r in issue.reads if isinstance(r, View))
    write = issue.writes[0]
    kind = str(issue.attrs.get("kind", "sum"))
    kind = "max" if kind == "abs_max" else kind
    over: tuple[Axis, ...] = issue.attrs["over"]
    have = C.accumulator(kind, source.dtype, write.dtype)
    lanes = [a for a in over if a.level == k.level and a.extent > 1]
    cores = [a for a in over if a.level != k.level and a.extent > 1]
    domain = k.domain(write)
    for at in k.each(domain):
        with k.out.block(""):
            k.out.line(f"{have}v all = {term(k, kind, source, at, have)};")
            for axis in lanes:
                _exchange(k, kind, have, axis)
            if cores:
                _hand_in(k, issue, write, at, have)
            else:
                k.put(write, at, narrowed("all", have, write.dtype))
    if cores:
        k.settle()
        k.out.line("#pragma omp barrier")
        for at in k.each(domain):
            with k.out.block(""):
                _collect(k, issue, write, at, have, kind, cores)
        k.out.line("#pragma omp barrier /* the next meeting writes there again */")


def _exchange(k: Kernel, kind: str, have: str, axis: Axis) -> None:
    """All lanes along ``axis`` get the combination of theirs."""
    bits = {"f64": "i64", "f32": "i32", "u8": "i8", "b8": "i8"}.get(have, have)
    step = axis.extent // 2
    while step:
        order = [
            lane + (((lane - axis.offset) // axis.stride % axis.extent ^ step)
                    - (lane - axis.offset) // axis.stride % axis.extent) * axis.stride
            for lane in range(k.lanes)
        ]  # fmt: skip
        other = f"__builtin_shuffle(all, ({bits}v){{{', '.join(map(str, order))}}})"
        k.out.line(f"all = {C.joined(kind, 'all', other, have)};")
        step //= 2


def _place(k: Kernel, issue: Issue, write: View, at: tuple[Dim, ...], have: str, core: str) -> str:
    number = register(write.buffer, k.element(write, at))
    each = count(write.buffer)
    memory = k.names[issue.attrs["workspace"]]
    return f"({have} *){memory} + (({core}) * {each} + {k.dim(number)}) * {k.lanes}"


def _hand_in(k: Kernel, issue: Issue, write: View, at: tuple[Dim, ...], have: str) -> None:
    k.out.line(f"tf_store_{have}({_place(k, issue, write, at, have, 'core_id')}, all);")


def _collect(
    k: Kernel, issue: Issue, write: View, at: tuple[Dim, ...], have: str, kind: str,
    cores: list[Axis],
) -> None:  # fmt: skip
    """The terms of the cores that meet, in their order."""
    strides = _strides(k)
    first, offsets = "core_id", [0]
    for axis in cores:
        step = axis.stride * strides[axis.level]
        first += f" - {k.names[axis]} * {step}"
        offsets = [o + n * step for o in offsets for n in range(axis.extent)]
    k.out.line(f"{have}v all = tf_load_{have}({_place(k, issue, write, at, have, first)});")
    for offset in offsets[1:]:
        place = _place(k, issue, write, at, have, f"{first} + {offset}")
        k.out.line(f"all = {C.joined(kind, 'all', f'tf_load_{have}({place})', have)};")
    k.put(write, at, narrowed("all", have, write.dtype))


def _strides(k: Kernel) -> dict[str, int]:
    out: dict[str, int] = {}
    inner = 1
    for level, size in reversed(k.sizes.items()):
        out[level] = inner
        inner *= size
    return out


EMITTERS = {"reduce": emit_reduce}
