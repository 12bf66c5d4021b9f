"""The report of one function: asks the tables, fills the record, decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilefoundry.analyze.access import READ, WRITE
from tilefoundry.analyze.figure import Figure
from tilefoundry.analyze.function import Priced, price
from tilefoundry.analyze.listing import Listing
from tilefoundry.analyze.peak import Peak, Resident, fits
from tilefoundry.analyze.record import (
    BYTE,
    QUOTED,
    SECOND,
    Item,
    Line,
    Report,
    number,
    precise,
    word,
)
from tilefoundry.analyze.roofline import Roofline, roofline
from tilefoundry.check.windows import undecided
from tilefoundry.diag import ACCEPTED, REFUSED, UNDECIDED, Diag, Span, refuse
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.node import Node, Structural
from tilefoundry.lang.load import Selected
from tilefoundry.lang.parse import module_context
from tilefoundry.quantity import bytes_text
from tilefoundry.targets import Storage, Target
from tilefoundry.targets.folder import find_folder
from tilefoundry.targets.load import find_document

COMPUTE, MEMORY, ROOFLINE, TYPES = "compute-cost", "memory", "roofline", "types"


def analyze(
    loaded: Selected, families: Sequence[str], dims: dict[str, int], topology: str | None
) -> Report:
    """What ``loaded`` names costs: ``families`` of facts (none: types), open extents bound
    by ``dims``, per-unit figures of ``topology`` (None: the level that processors carry).

    Refuses (``analysis-*``) a module without target, an unknown level, name or extent.
    """
    module = loaded.module
    func = module.funcs.get(loaded.func)
    if func is None:
        refuse("function-unstated", module.span, module=module.name, func=loaded.func or "none",
               known=" ".join(module.funcs) or "none")  # fmt: skip
    if module.target is None:
        refuse("analysis-no-target", module.span, module=module.name)
    target: Target = module.target.load(module.span)
    level = target.processor.level if topology is None else topology
    if level not in target.levels:
        refuse(
            "analysis-level-unknown",
            None,
            level=level,
            target=target.id,
            known=" ".join(target.levels),
        )
    priced = price(module, func, target, module_context(module), dims, level)
    return _Builder(loaded, priced, families, topology).report()


class _Builder:
    def __init__(
        self, loaded: Selected, priced: Priced, families: Sequence[str], topology: str | None
    ) -> None:
        self.loaded, self.priced, self.topology = loaded, priced, topology
        self.families = tuple(families) or (TYPES,)
        self.program = priced.program
        self.listing = Listing(priced)
        self.findings: list[Diag] = []
        self.undecided: list[str] = []

    def report(self) -> Report:
        head: list[Line] = []
        if ROOFLINE in self.families:
            head += self._roofline(roofline(self.priced))
        if MEMORY in self.families:
            head += self._memory()
        if COMPUTE in self.families:
            head += self._compute()
        head += self._units()
        head += self._windows()
        if TYPES in self.families:
            self.listing.types()
        self.listing.loops()
        if COMPUTE in self.families:
            self.listing.compute()
        if MEMORY in self.families:
            self.listing.memory([s.name for s in self._storages()])
        exit = REFUSED if self.findings else UNDECIDED if self.undecided else ACCEPTED
        verdict = {ACCEPTED: "accepted", REFUSED: "refused", UNDECIDED: "undecided"}[exit]
        program = self.program
        first = [
            word("function", f"{program.module.name}.{program.func.name}"),
            word("target", program.target.id),
            word("verdict", verdict),
        ]
        lines = [Line("analyze", tuple(first)), *map(self._finding, self.findings)]
        lines += [Line("undecided", (Item("reason", why, QUOTED),)) for why in self.undecided]
        rows = list(self.listing.rows.values())
        return Report(
            self.loaded.file,
            program.module.name,
            program.func.name,
            program.target.id,
            self.families,
            [*lines, *head],
            rows,
            self.findings,
            self.undecided,
            exit,
        )

    def _open(self, *figures: Figure) -> None:
        """Remember why a figure that was asked for is not known."""
        for figure in figures:
            if figure.value is None and figure.reason not in self.undecided:
                self.undecided.append(figure.reason)

    def _storages(self) -> list[Storage]:
        """Storages that the report is about: all, or those of the level asked for."""
        every = list(self.program.target.storages.values())
        if self.topology is None:
            return every
        return [s for s in every if self.topology in (s.level, s.pool)]

    # ---- head

    def _finding(self, diag: Diag) -> Line:
        f = diag.fields
        items = [word("code", diag.code), word("storage", str(f["storage"]))]
        items += [word("unit", str(f["unit"])), word("needs", str(f["needs"]))]
        items += [word("capacity", str(f["capacity"]))]
        if diag.span:
            items.append(number("line", diag.span.line))
        return Line("finding", (*items, word("values", str(f["values"]))))

    def _compute(self) -> Iterator[Line]:
        costs = self.priced.cost
        sizes = {k: n for k, c in costs.items() if isinstance(n := c.executed.value, int)}
        order = sorted(costs, key=lambda k: (-sizes.get(k, 0), k))
        for kind in order:
            cost = costs[kind]
            self._open(cost.logical, cost.executed, cost.per_unit)
            items = (
                word("kind", ".".join(kind)),
                number("logical", cost.logical),
                number("executed", cost.executed),
                number("per_unit", cost.per_unit),
                word("unit", self.priced.level),
                *precise(cost.logical, cost.executed, cost.per_unit),
            )
            yield Line("compute", items)

    def _units(self) -> Iterator[Line]:
        items = [number(level, self.program.units(level)) for level in self.program.used_levels]
        held = self.priced.occupancy if {MEMORY, ROOFLINE} & set(self.families) else None
        if held:
            items += [number("processors", held.processors), number("resident", held.resident)]
            if held.limit:
                items.append(word("limited_by", held.limit))
            items += [number("waves", held.waves), word("tail", f"{held.tail}/{held.wave or '?'}")]
            items += precise(held.waves)
        if items:
            yield Line("units", tuple(items))
        loose = [s for s in self.program.flow.sites if not s.mesh.axes and self._computes(s.node)]
        if loose:
            items = [number("statements", len(loose)), word("priced", "one_pass_each")]
            yield Line("unplaced", tuple(items))

    def _windows(self) -> Iterator[Line]:
        """Windows that neither bounds nor a unit and a step decide: `finalize`, which proves
        every access, and evaluation, which carries it out, may refuse them."""
        for window in undecided(self.program.func.body):
            span = window.node.span
            items = [number("line", span.line)] if span else []
            items.append(number("axis", window.axis))
            items += [word(k, str(getattr(window, k))) for k in ("extent", "start", "size")]
            why = "it is not known whether every unit and step keeps it inside"
            # what an open extent leaves open is decided where a size is given
            if not window.is_open and why not in self.undecided:
                self.undecided.append(why)
            items += [word("precision", "undecided"), Item("reason", why, QUOTED)]
            yield Line("window", tuple(items))

    def _computes(self, node: Node) -> bool:
        return not isinstance(node.op, Structural) and node in self.priced.traffic.by_node

    def _rated(self) -> tuple[Item, ...]:
        """What to run for a target that has the rates; a probe tells a second time what it told."""
        target = self.program.target
        folder, found = find_folder(target.family), find_document(target.id)
        probed = folder is not None and folder.has("host.probe")
        probed = probed and found is not None and found.place == "shipped"
        run = "target probe --write my.box" if probed else "target add FILE"
        id = "'my.box'" if probed else "the id in FILE"
        return (
            Item("run", f"tilefoundry {run}", QUOTED),
            Item("then", f"AnyTarget({id}) as the module's target: it states the rates", QUOTED),
        )

    def _roofline(self, found: Roofline) -> Iterator[Line]:
        limit = found.limit
        caches = self.program.target.caches
        unrated = [b.resource for b in found.bounds if b.unrated and b.resource not in caches]
        if found.open and found.open not in self.undecided:
            self.undecided.append(found.open)
        elif limit is None and found.bounds:
            self.undecided.append(found.bounds[0].reason)
        items = [word("limit", limit.resource if limit and not found.open else "undecided")]
        if limit and not found.open:
            items += [Item("time", limit.time, SECOND), word("precision", "lower_bound")]
            if found.kind and found.intensity is not None:
                items.append(word("kind", ".".join(found.kind)))
                items.append(Item("intensity", found.intensity, "op/byte"))
            if found.kind and found.attainable is not None:
                items.append(Item("attainable", found.attainable, "op/s"))
            if unrated:
                items.append(word("undecided", ",".join(unrated)))  # any of them may be the limit
        yield Line("roofline", tuple(items))
        if unrated:
            yield Line("hint", self._rated())
        for bound in found.bounds:
            amount = number("amount", bound.amount, BYTE if bound.unit == "byte" else "count")
            items = [word("resource", bound.resource), amount]
            if bound.rate is not None and bound.rate.value is not None:
                items.append(word("rate", f"{bound.rate.value:.4g}{bound.rate.unit}"))
                items.append(word("origin", bound.rate.origin))
            items.append(Item("time", bound.time, SECOND))
            if bound.time is not None:
                items.append(word("precision", "lower_bound"))
            else:
                items += [word("precision", "undecided"), Item("reason", bound.reason, QUOTED)]
            yield Line("bound", tuple(items))

    def _memory(self) -> Iterator[Line]:
        names = {s.name for s in self._storages()}
        for peak in self.priced.peaks:
            if peak.storage.name in names:
                yield from self._peak(peak)
        for storage in self.priced.storages:
            if storage in names:
                yield self._traffic(storage)
        shared = self.program.target.default_storage
        if shared in names:
            yield from self._footprint(shared)
            yield from self._cache()

    def _peak(self, peak: Peak) -> Iterator[Line]:
        storage = peak.storage
        capacity = storage.capacity.value
        unit = peak.level or "device"
        self._open(peak.amount)
        yield self._fullness(storage, unit, peak.amount, capacity, peak.in_place, peak.held)
        if self._judge(peak.amount, capacity):
            self._refuse(
                storage, unit, peak.amount, capacity, peak.held, lambda r: r.pooled, peak.at
            )
        if peak.each is not None and storage.unit_limit is not None:
            most = storage.unit_limit.value
            own = str(storage.level)
            yield self._fullness(storage, own, peak.each, most, None, peak.each_held)
            if self._judge(peak.each, most):
                self._refuse(
                    storage, own, peak.each, most, peak.each_held, lambda r: r.each, peak.at
                )

    def _judge(self, amount: Figure, capacity: int | float | None) -> bool:
        verdict = fits(amount, capacity)
        if verdict == "undecided" and capacity is not None and amount.value is not None:
            self.undecided.append(f"whether {amount.value} bytes fit depends on open extents")
        return verdict == "no"

    def _fullness(
        self,
        storage: Storage,
        unit: str,
        amount: Figure,
        capacity: int | float | None,
        less: Figure | None,
        held: list[Resident],
    ) -> Line:
        items = [word("storage", storage.name), word("unit", unit), number("peak", amount, BYTE)]
        items.append(Item("capacity", None if capacity is None else int(capacity), BYTE))
        items.append(word("fits", fits(amount, capacity)))
        if less is not None and less.value is not None and less.value != amount.value:
            items.append(number("in_place", less, BYTE))
        width = self.program.target.stated("registers.width")
        single = unit == storage.level and storage.unit_limit is not None
        if single and width and width.value and isinstance(amount.value, int):
            items.append(number("registers", -(-amount.value // int(width.value))))
        items += precise(amount)
        return Line("peak", tuple(items))

    def _refuse(
        self,
        storage: Storage,
        unit: str,
        amount: Figure,
        capacity: int | float | None,
        held: list[Resident],
        size: Callable[[Resident], Dim],
        at: int,
    ) -> None:
        values = ",".join(f"{r.home.name}:{_bytes(size(r))}" for r in held)
        line = self.listing.line_of(at)
        file = self.program.func.span.file
        fields = {
            "storage": storage.name,
            "unit": unit,
            "needs": _bytes(amount.value),
            "capacity": _bytes(capacity),
            "values": values,
            "largest": f"{held[0].home.name} alone takes {_bytes(size(held[0]))}" if held else "",
        }
        self.findings.append(Diag("capacity-exceeded", Span(file, line) if line else None, fields))

    def _traffic(self, storage: str) -> Line:
        read, write = self.priced.moved(storage, READ), self.priced.moved(storage, WRITE)
        self._open(*read, *write)
        items = (
            word("storage", storage),
            number("read", read[1], BYTE),
            number("written", write[1], BYTE),
            number("logical_read", read[0], BYTE),
            number("logical_written", write[0], BYTE),
            *precise(*read, *write),
        )
        return Line("traffic", items)

    def _footprint(self, storage: str) -> Iterator[Line]:
        reads, writes = self.priced.compulsory
        for way, table in (("read", reads), ("written", writes)):
            for name, amount in table.items():
                self._open(amount)
                items = (word("buffer", name), number(way, amount, BYTE), *precise(amount))
                yield Line("footprint", items)

    def _cache(self) -> Iterator[Line]:
        capacity = self.priced.cache_bytes
        device = [c for c in self.program.target.caches.values() if c.scope == "device"]
        if not device or not self.priced.windows:
            return
        over = [w for w in self.priced.windows if fits(w.window, capacity) == "no"]
        names = ",".join(dict.fromkeys(w.access.home.name for w in over)) or "none"
        items = [word("cache", device[0].name), Item("capacity", capacity, BYTE)]
        yield Line("reuse", (*items, word("exceeded_by", names)))


def _bytes(x: object) -> str:
    return bytes_text(x) if isinstance(x, (int, float)) else str(x)
