"""Every feasible plan of a site: instructions, consumers, copies, slots, roles, store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from tilefoundry.analyze.function import price
from tilefoundry.analyze.roofline import roofline
from tilefoundry.ir.mesh import Mesh, arrange, enter
from tilefoundry.ir.program import Module
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.parse import module_context
from tilefoundry.plan.bound import Bound, Load, Rates, amounts, bound, latency, rates, read_bytes
from tilefoundry.plan.compute import (
    Compute,
    Consumers,
    Use,
    computes,
    grids,
    keep,
    units_of,
    uses,
)
from tilefoundry.plan.moves import Move, copies, moves, natural, wanted
from tilefoundry.plan.resources import (
    Capacities,
    Registers,
    Short,
    barrier_bytes,
    consumer_registers,
    registers,
    resident,
    slot_bytes,
)
from tilefoundry.plan.site import Site
from tilefoundry.plan.tiles import SPREADS, Tile, shared
from tilefoundry.targets.contract.copy import CopyInstr, Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.target import Target

SAME, APART = "same threads", "producer apart"
DIRECT, LOADER, STORER, CONSUMERS = "consumers, registers", "loader", "own storer", "consumers"
STORES = (STORER, CONSUMERS, LOADER, DIRECT)
"""Who stores, those first whose store stands in the way of least."""
MOST_SLOTS = 16
"""Slots of a ring to plan for: more bytes in flight than any latency asks for."""


@dataclass(frozen=True)
class Plan:
    """One feasible pipeline with what it takes and how long it takes at least."""

    site: Site
    compute: Compute
    moves: tuple[Move, Move]
    roles: str
    store: str
    slots: int
    staging: Tile | None
    store_by: CopyInstr | None
    units: int
    lead: int
    bytes: int
    registers: Registers
    resident: int
    resident_limit: str
    waves: int
    busy: Fraction | None
    """Of the time of all processors, the share in which they have a tile."""
    in_flight: int
    latency: Fraction | str
    """Seconds of the slower load at least, or why they are not known."""
    bound: Bound

    @property
    def stage(self) -> int:
        """Bytes of one slot of every ring."""
        return sum(slot_bytes(m.ring) for m in self.moves)

    @property
    def issues(self) -> int:
        return sum(m.issues for m in self.moves)

    @property
    def order(self) -> tuple[Any, ...]:
        """Place in reports."""
        total = self.bound.total if self.bound.total is not None else self.bound.step
        use = self.compute.use
        return (
            total is None,
            total or 0,
            -self.in_flight,
            self.issues,
            len(self.compute.fragments),
            STORES.index(self.store),
            self.units,
            self.registers.need,
            self.slots,
            use.atom.rank,
            use.text(),
            self.compute.consumers.grid,
            tuple(m.instr.rank for m in self.moves),
        )


@dataclass
class Found:
    """The plans of a site in order, what each instruction that has no legal use did not meet,
    and how many combinations each capacity kept out."""

    site: Site
    plans: list[Plan]
    unmet: dict[str, Unmet]
    refused: Counter[str]
    rates: Rates
    load: Load
    nearest: dict[str, Short] = field(default_factory=lambda: dict[str, Short]())
    """Of a capacity whose refusals differ, the one that lacks least."""


def search(module: Module, site: Site, target: Target, binding: str) -> Found:
    """Every feasible plan of ``site``, best bound first."""
    return _Search(module, site, target, binding).found()


class _Search:
    def __init__(self, module: Module, site: Site, target: Target, binding: str) -> None:
        self.module, self.site, self.target, self.binding = module, site, target, binding
        self.caps = Capacities(target)
        self.unmet: dict[str, Unmet] = {}
        self.refused: Counter[str] = Counter()
        self.nearest: dict[str, Short] = {}
        self.legal: set[str] = set()
        self.near = self.caps.shared
        self._moves: dict[tuple[str, int, int], dict[str, list[Move]]] = {}
        self._computes: dict[Any, tuple[Compute, tuple[Move, Move]] | None] = {}

    def found(self) -> Found:
        dtype = self.site.loads[0].tile.dtype.name
        near = self.near.name if self.near else ""
        self.rates = rates(self.target, dtype, near)
        self.load = amounts(self.site, self.caps.level)
        plans = list(self._plans()) if near else []
        plans.sort(key=lambda p: p.order)
        self.unmet = {path: u for path, u in self.unmet.items() if path not in self.legal}
        return Found(
            self.site, plans, self.unmet, self.refused, self.rates, self.load, self.nearest
        )

    # ---- combinations

    def _plans(self) -> Iterator[Plan]:
        known = copies(self.target, (self.target.default_storage, self._near))
        for use in self._natural(list(uses(self.site, self.target, self.unmet))):
            for grid in grids(self.site, use, self.caps.units or 1 << 30):
                for roles in (APART, SAME):
                    yield from self._under(use, grid, roles, known)

    @property
    def _near(self) -> str:
        assert self.near is not None
        return self.near.name

    def _natural(self, found: list[Use]) -> list[Use]:
        """Uses that take the operands as they lie; the others only where an instruction has
        none of them: a copy would have to transpose."""
        out: list[Use] = []
        fits = {id(u): self._misfits(u) for u in found}
        for path in dict.fromkeys(u.atom.path for u in found):
            mine = [u for u in found if u.atom.path == path]
            least = min(fits[id(u)] for u in mine)
            out += [u for u in mine if fits[id(u)] == least]
        return out

    def _misfits(self, use: Use) -> int:
        return sum(
            wanted(use, x, load) != natural(load)
            for x, load in zip("AB", self.site.loads, strict=True)
        )

    def _under(self, use: Use, grid: tuple[int, int], roles: str, known: list[CopyInstr]):
        group = use.atom.execution_mesh.units
        count = grid[0] * grid[1]
        for store in STORES:
            if roles == SAME and store in (LOADER, STORER):
                continue
            lead = self._lead(group, roles, store)
            units = lead + count * group
            if units > (self.caps.units or units):
                self.refused[f"{self.caps.unit}s of one {self.caps.level}"] += 1
                continue
            consumers = units_of(self.site, use, grid, lead)
            loader = self._loader(consumers) if roles == APART else consumers.mesh
            for pair in self._pairs(use, loader, known):
                chosen = self._chosen(use, consumers, pair)
                if chosen is not None:
                    yield from self._sized(*chosen, roles, store, units, lead, consumers)

    def _lead(self, group: int, roles: str, store: str) -> int:
        """Units in front of the consumers: one group, which a loader and a storer share if it
        holds several of the hardware's small groups."""
        if roles == SAME:
            return 0
        small = self.caps.small
        need = small * (2 if store == STORER else 1)
        return -(-need // group) * group

    def _loader(self, consumers: Consumers) -> Mesh:
        level = self.caps.unit
        axes = arrange(level, (self.caps.small,), ("lane",))
        outer = tuple(a for a in consumers.mesh.axes if a.level != level)
        levels = tuple(dict.fromkeys((*self.site.mesh.levels, level)))
        return enter(Mesh(outer), Mesh(axes), levels)

    def _pairs(self, use: Use, loader: Mesh, known: list[CopyInstr]):
        options: list[dict[str, list[Move]]] = []
        for x, load in zip("AB", self.site.loads, strict=True):
            fast = wanted(use, x, load)
            key = (x, fast, loader.count(self.caps.unit))
            if key not in self._moves:
                made = {
                    c.path: [
                        m
                        for m in moves(load, c, fast, loader, self._near)
                        if isinstance(m, Move)
                    ]
                    for c in known
                }  # fmt: skip
                self._moves[key] = {path: ms for path, ms in made.items() if ms}
            options.append(self._moves[key])
        seen: set[tuple[str, str]] = set()
        for n, _ in enumerate(known):
            order = [c.path for c in (*known[n:], *known[:n])]
            first, second = (next((p for p in order if p in made), "") for made in options)
            picks = first, second
            if all(picks) and picks not in seen:
                seen.add(picks)
                yield options[0][picks[0]], options[1][picks[1]]

    def _chosen(
        self, use: Use, consumers: Consumers, pair: tuple[list[Move], list[Move]]
    ) -> tuple[Compute, tuple[Move, Move]] | None:
        """The first layouts, widest swizzle first, that the instruction takes."""
        key = (id(use), consumers.grid, pair[0][0].instr.path, pair[1][0].instr.path)
        if key not in self._computes:
            self._computes[key] = self._first(use, consumers, pair)
        found = self._computes[key]
        return found and (replace(found[0], consumers=consumers), found[1])

    def _first(
        self, use: Use, consumers: Consumers, pair: tuple[list[Move], list[Move]]
    ) -> tuple[Compute, tuple[Move, Move]] | None:
        for a in pair[0]:
            for b in pair[1]:
                made = computes(self.site, use, consumers, (a.ring, b.ring), self.binding)
                if isinstance(made, Compute):
                    self.legal.add(use.atom.path)
                    return made, (a, b)
                keep(self.unmet, use.atom, made)
                if made.clause == "A":
                    break  # no layout of B mends it
        return None

    def _sized(
        self,
        compute: Compute,
        pair: tuple[Move, Move],
        roles: str,
        store: str,
        units: int,
        lead: int,
        consumers: Consumers,
    ) -> Iterator[Plan]:
        need = consumer_registers(compute.C, compute.fragments, self.site.result.alive)
        m, n, _ = compute.use.shape
        group = compute.use.atom.execution_mesh.units
        issue = m * n // group
        shares = registers(self.caps, need, issue, units, lead, group)
        if isinstance(shares, Short):
            self.refused["registers"] += 1
            least = self.nearest.setdefault("registers", shares)
            if shares.lacking < least.lacking:
                self.nearest["registers"] = shares
            return
        staging, by = None, None
        if store != DIRECT:
            staged = self._staging
            if staged is None:
                self.refused["no asynchronous store of the result"] += 1
                return
            staging, by = staged
        steps = self.load.steps or MOST_SLOTS
        most = min(steps, MOST_SLOTS, 2 if roles == SAME else MOST_SLOTS)
        stage = sum(slot_bytes(m.ring) for m in pair)
        room = self.caps.shared_bytes
        readers = 2 if compute.fragments else 1
        fixed = slot_bytes(staging) if staging is not None else 0
        for slots in range(1, most + 1):
            bytes = slots * stage + fixed + barrier_bytes(slots, readers, staging is not None)
            if room is not None and bytes > room:
                self.refused[f"{self._near} of one {self.caps.level}"] += 1
                break
            yield self._plan(
                compute, pair, roles, store, slots, staging, by, units, lead, bytes, shares
            )

    def _plan(
        self,
        compute: Compute,
        pair: tuple[Move, Move],
        roles: str,
        store: str,
        slots: int,
        staging: Tile | None,
        by: CopyInstr | None,
        units: int,
        lead: int,
        bytes: int,
        shares: Registers,
    ) -> Plan:
        carried, limit = resident(self.caps, bytes, units, shares.launch)
        carried = max(1, carried)
        processors = int(self.target.processor.count.value or 1)
        total = self.site.mesh.count(self.caps.level)
        waves = -(-total // (processors * carried))
        active = min(carried, -(-total // processors))
        sizes = tuple(int(m.ring.type.nbytes()) for m in pair)  # type: ignore[arg-type]
        m, n, k = self.site.extents
        ahead = roles == APART or compute.use.atom.proxy == "async"
        asynchronous = all(x.asynchronous for x in pair)
        overlap = slots > 1 and ahead and (asynchronous or roles == APART)
        reads = read_bytes(compute, (sizes[0], sizes[1]))
        deep = slots if roles == APART else 1
        delay = latency(self.target, (x.instr.path for x in pair))
        known = delay if isinstance(delay, Fraction) else Fraction(0)
        least = bound(
            self.rates, self.load, 2 * m * n * k, sum(sizes), reads, overlap, deep, known, active,
            waves, self.far_time,
        )  # fmt: skip
        busy = None
        if self.load.all is not None and self.load.times:
            busy = Fraction(self.load.all, self.load.times * waves * processors * active)
        flying = sum(s for s, x in zip(sizes, pair, strict=True) if x.asynchronous)
        flying *= active * deep
        return Plan(
            self.site, compute, pair, roles, store, slots, staging, by, units, lead, bytes,
            shares, carried, limit, waves, busy, flying, delay, least,
        )  # fmt: skip

    # ---- asked once

    @cached_property
    def _staging(self) -> tuple[Tile, CopyInstr] | None:
        """A shared tile from which an asynchronous copy stores the result, and the copy."""
        value = self.site.result.value.tensor
        tile = TensorType(value.shape, value.dtype, None, self.target.default_storage)
        mesh = Mesh(arrange(self.caps.unit, (self.caps.small,), ("lane",)))
        for instr in copies(self.target, (self._near, self.target.default_storage)):
            if instr.completion == ("none",):
                continue
            for span in SPREADS:
                staged = shared(tile, tile.rank - 1, span, self._near) if tile.rank == 2 else None
                if staged is None:
                    continue
                target = Side(tile, self.site.result.window)
                found = instr.judge(self.caps.unit, mesh, Side(staged.type), target)
                if not isinstance(found, Unmet):
                    return staged, instr
        return None

    @cached_property
    def far_time(self) -> Fraction | None:
        """The least time in which device memory gives and takes the program's distinct bytes."""
        priced = price(
            self.module, self.site.func, self.target, module_context(self.module), {},
            self.caps.level,
        )  # fmt: skip
        for part in roofline(priced).bounds:
            if part.resource == self.target.default_storage:
                return part.time
        return None
