"""Which trips of a loop are evaluated together: those shown to be apart, as many as caches hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilefoundry.check.vary import Axes, vary
from tilefoundry.evaluate.frame import ANY
from tilefoundry.evaluate.index import spans
from tilefoundry.evaluate.lanes import ALL, Rows, Units, join
from tilefoundry.evaluate.nodes import Nodes
from tilefoundry.evaluate.placed import PLACES
from tilefoundry.evaluate.trips import BUDGET, MOST_BOXES, Boxes, Trips, are_apart, even_within
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, LoopVar, Sym
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Loop, Node, nodes, walk
from tilefoundry.ir.program import Func
from tilefoundry.ir.types import TensorType, TupleType

if TYPE_CHECKING:
    from tilefoundry.evaluate.run import Evaluator


@dataclass(frozen=True)
class Steps:
    """A loop as it is about to run: for every one of the units ``every`` on ``axes`` its first
    value, its step and its trips. ``units``: those of the axes that are a mesh's."""

    loop: Loop
    axes: tuple[Axis, ...]
    units: tuple[Axis, ...]
    every: Units
    start: Rows
    step: Rows
    trips: Rows

    def rows(self, first: int, size: int) -> tuple[Rows, Rows]:
        """All trips from ``first`` on, ``size`` of them at most: the row of ``every``, and the
        number of the trip counted from ``first``."""
        counts = np.clip(self.trips - first, 0, size)
        held = np.repeat(np.arange(len(counts)), counts)
        return held, np.arange(len(held)) - np.repeat(np.cumsum(counts) - counts, counts)


class Independent(Nodes):
    """Decides it in a frame."""

    def __init__(
        self, owner: Evaluator, func: Func, dims: Mapping[Sym, int], weights: Mapping[str, Any]
    ) -> None:
        super().__init__(owner, dims, func.body, weights)
        self.func = func
        self._vary: Mapping[Node, Axes] | None = None

    def trips_axis(self, loop: Loop, size: int) -> Trips:
        """``size`` trips of ``loop`` as an axis."""
        return Trips("trips", loop.var.name, size, 1, self.chains.number[loop], loop)

    def together(self, run: Steps) -> int:
        """How many trips are evaluated at once; 1: each by itself."""
        loop, most = run.loop, int(run.trips.max())
        if self.owner.in_turn or most < 2 or self.uneven or loop not in self.chains.writes:
            return 1
        if not even_within(loop, bool(run.units), self._of_units):
            return 1
        size = min(most, self._fit(loop))
        if size < 2 or not self._are_apart(run):
            return 1
        self.owner.batched = True
        return size

    def _of_units(self, symbol: Sym) -> bool:
        """The symbol's value differs between units of a mesh."""
        if isinstance(symbol, LoopVar):
            return any(not isinstance(a, Trips) for a in self.symbols[symbol].axes)
        return isinstance(symbol, Coord)

    def _fit(self, loop: Loop) -> int:
        """Trips whose values of any one statement are no more than :data:`BUDGET` together."""
        if self._vary is None:
            self._vary = vary(self.func, self.owner.context)
        around = prod(a.extent for a in join(u.axes for u in self.active) if isinstance(a, Trips))
        most = 1
        for node in nodes(loop.body):
            if node.op.name != "insert_slice" or loop not in self.chains.of.get(node, ()):
                copies = prod(a.extent for a in self._vary[node])
                most = max(most, copies * self._bytes(node))
        return max(1, BUDGET // (most * around))

    def _bytes(self, node: Node) -> int:
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        return sum(self._type_bytes(t) for t in types)

    def _type_bytes(self, type: TensorType) -> int:
        size = max(8, type.dtype.bits) // 8
        for extent in type.shape:
            known = {s: v.value for s, v in self.symbols.items() if v.units is ALL}
            high = ix.extremes(ix.substitute(extent, known))[1]
            size *= int(min(high, BUDGET))
        return size

    def _are_apart(self, run: Steps) -> bool:
        """No trip reads or writes what another trip of the same destination writes."""
        loop = run.loop
        for c in loop.carried:
            of = self.chains.versions[c]
            writes = [n for n in self.chains.writes[loop] if n in of]
            reads = [n for n in self.chains.reads[loop] if n.args[0] in of]
            axes = join([run.axes, *(self._axes(n, run) for n in (*writes, *reads))])
            units = self.executing(axes, ANY)
            if not len(units) or len(units) * int(run.trips.max()) > MOST_BOXES:
                return False
            try:
                found = [self._boxes(n, run, units) for n in (*writes, *reads)]
            except ZeroDivisionError:
                return False
            if found and not are_apart(found):
                return False
        return True

    def _axes(self, node: Node, run: Steps) -> tuple[Axis, ...]:
        """The axes around the loop on which the windows of ``node`` depend."""
        inner = _inner(run.loop)
        queue = {s for x in _parts(node) for s in ix.symbols(x)}
        known: set[Sym] = set()
        while queue:
            symbol = queue.pop()
            known.add(symbol)
            if isinstance(symbol, LoopVar) and symbol in inner:
                one = inner[symbol]
                queue |= {s for x in _ends(one) for s in ix.symbols(x)} - known
        return self.axes_of(s for s in known if s not in inner and s != run.loop.var)

    def _boxes(self, node: Node, run: Steps, units: Units) -> Boxes:
        """Where ``node`` reads or writes in every trip, over all steps of the loops inside."""
        of = units.find(run.every) if run.axes else np.zeros(len(units), np.int64)
        trips = np.where(of >= 0, run.trips[of], 0)
        held = np.repeat(np.arange(len(units)), trips)
        trip = np.arange(len(held)) - np.repeat(np.cumsum(trips) - trips, trips)
        env: dict[Sym, tuple[Any, Any]] = {}
        at = run.start[of][held] + trip * run.step[of][held]
        env[run.loop.var] = (at, at)
        inner = _inner(run.loop)

        def known(x: Dim) -> tuple[Any, Any]:
            for symbol in ix.symbols(x):
                if symbol in env:
                    continue
                if isinstance(symbol, LoopVar) and symbol in inner:
                    first, stop, step = (known(e) for e in _ends(inner[symbol]))
                    if np.any(np.asarray(step[0]) <= 0):
                        raise ZeroDivisionError  # downwards
                    env[symbol] = first[0], np.maximum(stop[1] - 1, first[0])
                else:
                    value = self._symbol(symbol, units)
                    value = value[held] if isinstance(value, np.ndarray) else value
                    env[symbol] = value, value
            return spans(x, env)

        windows: list[tuple[Any, Any]] = []
        for start, size, stride in zip(*_windows(node), strict=True):
            low, high = known(start)
            length, step = known(size)[1], known(stride)[1]
            windows.append((low, high + np.maximum(length - 1, 0) * step + 1))
        around = [a for a in units.axes if isinstance(a, Trips)]
        outer = units.numbers(around)[held] if around else np.zeros(len(held), np.int64)
        uneven = bool(run.units) and bool(run.trips.min() != run.trips.max())
        number = held * int(run.trips.max()) + trip if uneven else trip
        return Boxes(windows, number, outer, node.op.name == "insert_slice")


def _inner(loop: Loop) -> dict[Sym, Loop]:
    return {s.var: s for s in walk(loop.body) if isinstance(s, Loop)}


def _ends(loop: Loop) -> tuple[Dim, Dim, Dim]:
    return loop.start, loop.stop, loop.step


def _windows(node: Node) -> tuple[tuple[Dim, ...], tuple[Dim, ...], tuple[Dim, ...]]:
    """Starts, sizes and strides of a slice or of an insertion, per axis."""
    starts: Any = node.attrs[PLACES[node.op.name]]
    given: Any = node.attrs["sizes"] if node.op.name == "slice" else node.args[1].tensor.shape
    strides: Any = node.attrs.get("strides") or (1,) * len(starts)
    return tuple(starts), tuple(given), tuple(strides)


def _parts(node: Node) -> Iterator[Dim]:
    return (x for part in _windows(node) for x in part)
