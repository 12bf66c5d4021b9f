"""The state of one run: values, index symbols, and which units execute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilefoundry.diag import Span, refuse
from tilefoundry.evaluate.index import values
from tilefoundry.evaluate.lanes import ALL, Lanes, Units, join, uniform
from tilefoundry.evaluate.owners import Book, Signs
from tilefoundry.evaluate.trips import Trips, chains
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, LoopVar, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Block, Node

if TYPE_CHECKING:
    from tilefoundry.evaluate.run import Evaluator

ANY = Mesh()
"""No mesh in force: every unit there is."""


@dataclass(eq=False)
class _Column:
    """An index expression for some units, as long as its symbols have these values."""

    symbols: tuple[Sym, ...]
    held: list[Lanes] = field(default_factory=list)
    value: Any = None
    on: Any = None


class Frame:
    """What statements read and change while one function runs."""

    def __init__(self, owner: Evaluator, dims: Mapping[Sym, int], body: Block) -> None:
        self.owner = owner
        self.chains = chains(body)
        self.values: dict[Node, Lanes] = {}
        self.symbols: dict[Sym, Lanes] = {s: uniform(v) for s, v in dims.items()}
        self.active: list[Units] = []
        """For each loop around whose trips may differ: the units that still run it."""
        self.uneven: list[tuple[Axis, ...]] = []
        """For each loop around whose trips do differ: the axes of the levels that differ."""
        self.book = Book()
        self._executing: dict[Any, Units] = {}
        self.device = owner.device
        self._columns: dict[tuple[Expr, Units], _Column] = {}

    def shared(self, node: Node, axes: Sequence[Axis]) -> bool:
        """The units of ``axes`` see one copy of ``node``'s value; so do the trips of a loop that
        writes through it."""
        storage, loops = node.tensor.storage, self.chains.of.get(node, ())
        return all(
            a.loop in loops if isinstance(a, Trips) else self.owner.context.shared(storage, a.level)
            for a in axes
        )

    def executing(self, axes: tuple[Axis, ...], mesh: Mesh) -> Units:
        """Coordinate tuples of the units of ``mesh`` that execute here."""
        if not axes:
            return ALL
        key = (axes, id(mesh), *self.active)
        found = self._executing.get(key)
        if found is None:
            found = self.owner.enumeration.units(axes, mesh)
            for active in self.active:
                common = tuple(a for a in active.axes if a in axes)
                if common:
                    runs = np.isin(found.numbers(common), active.numbers(common))
                    found = self.owner.enumeration.keep(axes, found.table[runs])
            self._executing[key] = found
        return found

    def signs(self, units: Units, mesh: Mesh) -> Signs:
        """What ``units`` of ``mesh`` sign their writes with here."""
        return self.book.signs(
            units, join(self.uneven), lambda axis: self.executing((axis,), mesh).column(axis)
        )

    def axes_of(self, symbols: Iterable[Sym]) -> tuple[Axis, ...]:
        """The axes on which the values of ``symbols`` depend."""
        found: list[tuple[Axis, ...]] = []
        for s in symbols:
            if isinstance(s, Coord):
                assert s.axis is not None
                found.append((s.axis,))
            elif isinstance(s, (LoopVar, OpenDim)):
                found.append(self.symbols[s].axes)
        return join(found)

    def index(self, value: Dim, span: Span | None) -> Lanes:
        """A loop's bound, per unit where it depends on one."""
        units = self.executing(self.axes_of(ix.symbols(value)), ANY)
        return Lanes(units, self.column(value, units, span, "a loop's bound"))

    def column(self, value: Dim, units: Units, span: Span | None, op: str) -> Any:
        """An index expression for ``units``: an int, or an array where they differ."""
        if not isinstance(value, Expr):
            return value
        return self._column(value, units, span, op).value

    def column_on(self, value: Dim, units: Units) -> Any:
        """A :meth:`column` that was evaluated before, as a torch index on the device."""
        if not isinstance(value, Expr):
            return value
        column = self._columns[value, units]
        if column.on is None:
            column.on = self.on(column.value)
        return column.on

    def on(self, value: Any) -> Any:
        """An array as a torch index on the device; an int as it is."""
        import torch

        return torch.from_numpy(value).to(self.device) if isinstance(value, np.ndarray) else value

    def _column(self, value: Expr, units: Units, span: Span | None, op: str) -> _Column:
        known = self._columns.get((value, units))
        if known is None:
            symbols = tuple(sorted(ix.symbols(value), key=lambda s: s.key))
            known = self._columns[value, units] = _Column(symbols)
        held = [self.symbols[s] for s in known.symbols if not isinstance(s, Coord)]
        if known.value is None or any(a is not b for a, b in zip(known.held, held, strict=True)):
            try:
                known.value = values(value, {s: self._symbol(s, units) for s in known.symbols})
            except ZeroDivisionError:
                refuse("divide-by-zero", span, op=op)
            known.held, known.on = held, None
        return known

    def _symbol(self, symbol: Sym, units: Units) -> Any:
        if isinstance(symbol, Coord):
            assert symbol.axis is not None
            return units.column(symbol.axis)
        lanes = self.symbols[symbol]
        places = None if lanes.units is ALL else units.places(lanes.units)
        return lanes.value if places is None else lanes.value[places]
