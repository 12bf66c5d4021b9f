"""What all executions of one kernel share, found once: tables, plans, participants."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilefoundry.interpret.place import Places
from tilefoundry.interpret.plan import Planner
from tilefoundry.ir.expr import Dim, Sym, symbols
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.effects import Effects, effects
from tilefoundry.tir.program import For, Issue, PrimFunc, Scalar, Stmt, View, When, With

ITEMS = 8_000_000
"""Items of plans that are kept, some 30 bytes each."""


class Kernel:
    """One kernel, ready to be executed many times."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.places = Places(func)
        self.units = self.places.units
        self.planner = Planner(self.places)
        self.plans: dict[Any, Any] = {}
        self.outside = Mesh()
        """The mesh of statements outside of every scope."""
        self._items = 0
        self._symbols: dict[Dim, tuple[Sym, ...]] = {}
        self._effects: dict[Issue, Effects] = {}
        self._free: dict[Issue, tuple[Sym, ...]] = {}
        self._stations: dict[tuple[Issue, int], tuple[int, ...]] = {}
        self._busy: dict[tuple[Stmt, int], tuple[bool, ...]] = {}

    def keep(self, key: Any, plan: Any) -> None:
        """Remembers a plan; forgets all when they hold too many items."""
        self._items += plan.items
        if self._items > ITEMS:
            self._items = plan.items
            self.plans.clear()
            self.places.cache.clear()
        self.plans[key] = plan

    def symbols(self, x: Dim) -> tuple[Sym, ...]:
        found = self._symbols.get(x)
        if found is None:
            found = self._symbols[x] = tuple(symbols(x))
        return found

    def effects(self, issue: Issue) -> Effects:
        if issue not in self._effects:
            self._effects[issue] = effects(issue)
        return self._effects[issue]

    def free(self, issue: Issue) -> tuple[Sym, ...]:
        """Symbols that the places of an issue's operands depend on (slots apart)."""
        if issue not in self._free:
            views = [v for v in (*issue.reads, *issue.writes) if isinstance(v, View)]
            found = dict.fromkeys(s for view in views for s in self.places.free(view))
            for scalar in issue.reads:
                if isinstance(scalar, Scalar) and not isinstance(scalar.value, (float, bool)):
                    found.update(dict.fromkeys(self.symbols(scalar.value)))
            self._free[issue] = tuple(found)
        return self._free[issue]

    def station(self, issue: Issue, cta: int) -> tuple[int, ...]:
        """What of a CTA's place decides which registers its threads hold: CTAs that agree
        in it share plans."""
        key = (issue, cta)
        if key not in self._stations:
            level = self.units.level
            views = [v for v in (*issue.reads, *issue.writes) if isinstance(v, View)]
            # units of several CTAs combine by their coordinates
            out = [cta] if issue.attrs.get("scope") == "grid" else []
            for buffer in dict.fromkeys(v.buffer for v in views if v.storage == "rmem"):
                split = {d.axis for d in self.places.held(buffer).digits}
                for axis in buffer.mesh.axes:
                    if axis.level != level:
                        at = self.units.coordinate(axis, cta, None)
                        out.append(at if axis in split else min(at, 0))
            self._stations[key] = tuple(out)
        return self._stations[key]

    def busy(self, stmt: Stmt, cta: int, mesh: Mesh) -> tuple[bool, ...]:
        """Which warps of a CTA take part in a statement or one inside of it."""
        key = (stmt, cta)
        if key not in self._busy:
            self._busy[key] = self._find_busy(stmt, cta, mesh)
        return self._busy[key]

    def _find_busy(self, stmt: Stmt, cta: int, mesh: Mesh) -> tuple[bool, ...]:
        if isinstance(stmt, With):
            inside = [self.busy(s, cta, stmt.mesh) for s in stmt.body]
        elif isinstance(stmt, (For, When)):
            inside = [self.busy(s, cta, mesh) for s in stmt.body]
        else:
            return tuple(bool(x) for x in self.units.lanes(mesh, cta))
        return tuple(any(b[n] for b in inside) for n in range(self.units.warps))


@lru_cache(maxsize=8)
def kernel_of(func: PrimFunc) -> Kernel:
    """The shared part of ``func``'s executions."""
    return Kernel(func)
