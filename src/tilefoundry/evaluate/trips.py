"""Trips of a loop that may be evaluated all at once: they hand nothing on but a destination,
and no trip touches what another one writes.

Then the trips are an axis like those of meshes (:class:`Trips`), and every statement of the body
is evaluated once for all of them. What is not shown here to be apart runs trip by trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilefoundry.check.vary import written_through
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import LoopVar, Sym
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.node import Block, Carried, Loop, Node, walk

BUDGET = 1 << 24
"""Bytes of one statement's values in all trips evaluated together: about what caches hold."""
MOST_BOXES = 1 << 21
"""Windows compared to show that trips are apart."""


@dataclass(frozen=True)
class Trips(Axis):
    """Trips of ``loop`` that are evaluated together; ``offset`` is the loop's number."""

    loop: Loop | None = None


@dataclass
class Chains:
    """Destinations that loops write through, version after version, and nobody else keeps.

    ``of``: the loops inside which a version is one of their destination's. ``owned``: versions
    whose memory may be written in place, as each is read, by slices alone, before the next one is
    made. ``copied``: carried values whose first version somebody else may hold. ``versions`` of
    each carried value, ``writes`` and ``reads`` of each loop that carries only such destinations.
    """

    of: dict[Node, set[Loop]] = field(default_factory=dict)
    owned: set[Node] = field(default_factory=set)
    copied: set[Carried] = field(default_factory=set)
    versions: dict[Carried, set[Node]] = field(default_factory=dict)
    writes: dict[Loop, list[Node]] = field(default_factory=dict)
    reads: dict[Loop, list[Node]] = field(default_factory=dict)
    number: dict[Loop, int] = field(default_factory=dict)
    through: set[Carried] = field(default_factory=set)


def chains(body: Block) -> Chains:
    """The destinations of a function's loops."""
    out = Chains(through=written_through(body))
    order = {stmt: n for n, stmt in enumerate(walk(body))}
    loops = [s for s in order if isinstance(s, Loop)]
    out.number = {loop: n for n, loop in enumerate(loops)}
    if not loops:
        return out
    uses = _uses(order)
    inner = {c.result: c for loop in loops for c in loop.carried if c in out.through}
    of_loop = {c: loop for loop in loops for c in loop.carried}
    for loop in loops:  # outer ones first
        for c in loop.carried:
            if c not in out.through or c.head in out.owned:
                continue
            links = list(_links(c, inner))
            if all(_alone(v, after, uses, order, of_loop) for v, after in links):
                out.owned |= {v for v, _ in links}
                out.copied.add(c)
    for loop in loops:
        if loop.carried and all(c.head in out.owned for c in loop.carried):
            out.versions |= {c: {v for v, _ in _links(c, inner)} for c in loop.carried}
            versions = [v for c in loop.carried for v in out.versions[c]]
            for v in versions:
                out.of.setdefault(v, set()).add(loop)
            out.writes[loop] = [v for v in versions if v.op.name == "insert_slice"]
            sliced = (u for v in versions for u in uses.get(v, ()) if isinstance(u, Node))
            out.reads[loop] = [u for u in sliced if u.op.name == "slice"]
    return out


def _uses(order: Iterable[Any]) -> dict[Node, list[Any]]:
    """What uses each value: statements, the carried values of loops that begin with it, the ends
    of steps as (carried value, "step"), returns."""
    out: dict[Node, list[Any]] = {}
    for stmt in order:
        if isinstance(stmt, Node):
            for arg in stmt.args:
                out.setdefault(arg, []).append(stmt)
        elif isinstance(stmt, Loop):
            for c in stmt.carried:
                out.setdefault(c.init, []).append(c)
                out.setdefault(c.step, []).append((c, "step"))
        elif hasattr(stmt, "values"):
            for value in stmt.values:
                out.setdefault(value, []).append(stmt)
    return out


def _links(
    c: Carried, inner: Mapping[Node, Carried]
) -> list[tuple[Node, Node | Carried | tuple[Carried, str]]]:
    """Every version of a destination with what makes the next one of it: an insertion, an inner
    loop, or the end of the step."""
    out: list[tuple[Node, Any]] = []
    at, after = c.step, (c, "step")
    while True:
        out.append((at, after))
        if at is c.head:
            return out
        if at.op.name == "insert_slice":
            at, after = at.args[0], at
        else:
            within = inner[at]
            out += _links(within, inner)
            at, after = within.init, within


def _alone(
    version: Node,
    after: Any,
    uses: Mapping[Node, list[Any]],
    order: Mapping[Any, int],
    of_loop: Mapping[Carried, Loop],
) -> bool:
    """The version is read by slices only, all of them before the next one takes its memory."""
    found = list(uses.get(version, ()))
    if after not in found or found.count(after) > 1:
        return False
    found.remove(after)
    if isinstance(after, tuple):
        last = len(order)
    else:
        last = order[after] if isinstance(after, Node) else order[of_loop[after]]
        if isinstance(after, Node) and after.args[1] is version:
            return False
    return all(isinstance(u, Node) and u.op.name == "slice" and order[u] < last for u in found)


def even_within(loop: Loop, apart: bool, depends: Any) -> bool:
    """No loop inside makes trips that differ between units: their order is judged trip by trip.

    ``apart``: the loop's own variable differs between units; ``depends`` says so of a symbol
    from around it.
    """
    inner = {s.var: s for s in walk(loop.body) if isinstance(s, Loop)}
    for one in inner.values():
        queue, known = set(_bounds(one)), set()
        while queue:
            symbol = queue.pop()
            known.add(symbol)
            if isinstance(symbol, LoopVar) and symbol in inner:
                queue |= set(_bounds(inner[symbol])) - known
            elif apart if symbol == loop.var else depends(symbol):
                return False
    return True


def _bounds(loop: Loop) -> set[Sym]:
    return {s for x in (loop.start, loop.stop, loop.step) for s in ix.symbols(x)}


@dataclass(frozen=True)
class Boxes:
    """Windows of one destination, one per row: ``spans`` per axis are (first, past the last),
    ``trip`` the one that reads it or ``writes`` it, ``outer`` tells copies of the destination."""

    spans: Sequence[tuple[Any, Any]]
    trip: np.ndarray
    outer: np.ndarray
    writes: bool


def are_apart(boxes: Sequence[Boxes]) -> bool:
    """No trip's window meets one that another trip writes.

    Windows that overlap along an axis are one cluster there, and windows are compared by their
    clusters along all axes: coarser than need be, never finer.
    """
    trip = np.concatenate([b.trip for b in boxes])
    writes = np.concatenate([np.full(len(b.trip), b.writes) for b in boxes])
    cells = [np.concatenate([b.outer for b in boxes])]
    for axis in range(len(boxes[0].spans)):
        lo, hi = (
            np.concatenate([np.broadcast_to(b.spans[axis][n], len(b.trip)) for b in boxes])
            for n in (0, 1)
        )
        cells.append(_clusters(lo, hi))
    _, cell = np.unique(np.stack(cells, axis=1), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    written = np.zeros(int(cell.max()) + 1, bool)
    written[cell[writes]] = True
    cell, trip = cell[written[cell]], trip[written[cell]]
    return len(np.unique(cell)) == len(np.unique(np.stack([cell, trip], axis=1), axis=0))


def _clusters(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """For every interval, the number of the cluster of overlapping ones that it is in."""
    order = np.argsort(lo, kind="stable")
    reach = np.maximum.accumulate(hi[order])
    begins = np.concatenate([[False], lo[order][1:] >= reach[:-1]])
    out = np.empty(len(lo), np.int64)
    out[order] = np.cumsum(begins)
    return out
