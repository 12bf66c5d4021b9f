"""Copies and fills, between memory and registers or within either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.emit.address import address
from tilefoundry.emit.c import memory
from tilefoundry.emit.c.kernel import UNROLL, Domain, Kernel
from tilefoundry.emit.c.memory import inside_tests, whole_tests
from tilefoundry.emit.c.pieces import copy_loops, nearest_last
from tilefoundry.emit.c.text import bits_of, c_type, converted
from tilefoundry.emit.c.turned import turn
from tilefoundry.ir.expr import Dim, Expr, IterVar, multiple_of, substitute
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.tir.program import Issue, Scalar, View

LINE = 64
"""Bytes that one request for memory brings."""
NEIGHBOURS = 8
"""Elements next to each other up to which they are written out: the compiler then makes vectors
of the loop around them, which interleave what lies apart."""


def emit_copy(k: Kernel, issue: Issue, mesh: Mesh, said: CText | None = None) -> None:
    """Element by element, a vector at a time where registers are one end; whole vectors are
    stored to memory as ``said``, and where they are loaded it asks for what comes later."""
    write = issue.writes[0]
    if not issue.reads:
        return  # a fill that leaves what is there
    open_views = [v for v in (issue.reads[0], write) if isinstance(v, View) and v.fill is not None]
    tests = [whole_tests(k, v) for v in open_views]
    if not open_views or not all(tests):
        _copy(k, issue, said)
        return
    with k.out.block(f"if ({' && '.join(t for found in tests for t in found or ())})"):
        inside = replace(issue, reads=tuple(map(_inside, issue.reads)), writes=(_inside(write),))
        _copy(k, inside, said)
    with k.out.block("else"):
        _copy(k, issue, said)


def _inside(view: Any) -> Any:
    """An operand of which no element is outside of its buffer."""
    return replace(view, fill=None) if isinstance(view, View) else view


def _copy(k: Kernel, issue: Issue, said: CText | None) -> None:
    source, write = issue.reads[0], issue.writes[0]
    driver = k.driver(issue)
    if driver is None:
        _in_memory(k, issue)
        return
    asked: dict[str, list[Dim]] = {}
    call, pair = (said.call, said.pair) if said else ("", "")
    first: tuple[tuple[Dim, ...], str] | None = None
    domain = k.domain(driver)
    for at in k.each(domain):
        if isinstance(source, View):
            for way, ahead in _aheads(issue, said):
                _ask(k, source, at, ahead, way, asked.setdefault(way, []))
        text = converted(k.value(source, at), source.dtype, write.dtype)
        if pair and domain.size <= UNROLL and first is None and _begins(k, write, at):
            first = at, text
        elif first is not None and _follows(k, write, first[0], at):
            k.out.line(f"{pair}({memory.contiguous(k, write, first[0])}, {first[1]}, {text});")
            first = None
        else:
            if first is not None:
                k.put(write, *first, call)
            first = None
            k.put(write, at, text, call)
    if first is not None:
        k.put(write, *first, call)


def _aheads(issue: Issue, said: CText | None) -> Iterator[tuple[str, int]]:
    """By which calls what is asked for, and how many elements later it is."""
    ahead = issue.attrs.get("prefetch")
    if ahead is not None and said is not None:
        distances = ahead if isinstance(ahead, tuple) else (ahead,)
        yield from zip((said.call, said.near), distances, strict=False)


def _begins(k: Kernel, write: View, at: tuple[Dim, ...]) -> bool:
    """A vector of half a line or less that begins where two of them may lie in one."""
    bytes = k.lanes * write.dtype.bits // 8
    if 2 * bytes > LINE or memory.contiguous(k, write, at) is None:
        return False
    return multiple_of(memory.start(k, write, at)) * write.dtype.bits // 8 % (2 * bytes) == 0


def _follows(k: Kernel, write: View, before: tuple[Dim, ...], at: tuple[Dim, ...]) -> bool:
    """The next vector in memory."""
    if memory.contiguous(k, write, at) is None:
        return False
    return memory.start(k, write, at) - memory.start(k, write, before) == k.lanes


def _ask(
    k: Kernel, view: View, at: tuple[Dim, ...], ahead: int, call: str, asked: list[Dim]
) -> None:
    """Asks for the line ``ahead`` elements behind those at ``at``, unless it was asked for."""
    later = k.per_lane(address(view.buffer, k.element(view, at)))[0] + ahead
    line = LINE * 8 // view.dtype.bits
    near = (later - x for x in asked)
    if not any(isinstance(d, int) and 0 <= d < line for d in near):
        asked.append(later)
        k.out.line(f"{call}({k.names[view.buffer]} + {k.dim(later)});")


def _in_memory(k: Kernel, issue: Issue) -> None:
    """A copy or fill of memory by each core, as the statements around it say which."""
    source, write = issue.reads[0], issue.writes[0]
    parts = copy_loops(write.shape, [v for v in (source, write) if isinstance(v, View)])
    cut = k.over(write.shape, parts)
    order = nearest_last(parts, cut.vars, address(write.buffer, k.element(write, cut.at)))
    every = Domain(tuple(parts[n] for n in order), tuple(cut.vars[n] for n in order), cut.at)
    if isinstance(source, View) and _turned(k, source, write, every):
        return
    written = [n for n in order[-1:] if len(order) > 1 and parts[n].extent <= NEIGHBOURS]
    looped = [n for n in order if n not in written]
    domain = Domain(tuple(parts[n] for n in looped), tuple(cut.vars[n] for n in looped), cut.at)
    inside = [(cut.vars[n], parts[n].extent) for n in written]
    with k.out.block(""):
        for at in _written_out(k.each(domain, unroll=1), inside):
            tests = inside_tests(k, write, k.element(write, at))
            into = f"{k.names[write.buffer]}[{k.dim(address(write.buffer, k.element(write, at)))}]"
            dtype = c_type(write.dtype)
            if isinstance(source, Scalar):
                value = (
                    f"({dtype})({k.dim(source.value)})" if isinstance(source.value, Expr)
                    else bits_of(source.value, write.dtype)
                )  # fmt: skip
            else:
                place = k.element(source, at)
                value = f"{k.names[source.buffer]}[{k.dim(address(source.buffer, place))}]"
                found = inside_tests(k, source, place)
                if found:
                    value = f"{found} ? {value} : {bits_of(source.fill or 0, source.dtype)}"
            k.out.line(f"{f'if ({tests}) ' if tests else ''}{into} = {value};")


def _written_out(
    places: Iterable[tuple[Dim, ...]], inside: Sequence[tuple[IterVar, int]]
) -> Iterator[tuple[Dim, ...]]:
    """Each place once for each value of the variable ``inside``, if there is one."""
    for at in places:
        if not inside:
            yield at
        for var, extent in inside:
            for value in range(extent):
                yield tuple(substitute(x, {var: value}) for x in at)


def _turned(k: Kernel, source: View, write: View, every: Domain) -> bool:
    """Writes a copy of whole tiles that is a transposition; False where it is none."""
    if source.fill is not None or write.fill is not None:
        return False
    turned = turn(k, write, source, every)
    if turned is None:
        return False
    with k.out.block(""):
        for at in k.each(turned.rest, unroll=1):
            to, came = (
                f"{k.names[v.buffer]} + {k.dim(address(v.buffer, k.element(v, at)))}"
                for v in (write, source)
            )
            k.out.line(f"tf_turn_{turned.bits}({to}, {turned.to_step}, {came}, "
                       f"{turned.from_step}, {turned.rows}, {turned.columns});")  # fmt: skip
    return True


EMITTERS = {"copy": emit_copy, "fill": emit_copy}
