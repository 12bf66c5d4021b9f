"""One function priced together with what it calls, callees first."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tilefoundry.analyze.access import READ, WRITE
from tilefoundry.analyze.figure import EXACT, LOWER, Binding, Figure, Undecidable, joined, undecided
from tilefoundry.analyze.flow import Site
from tilefoundry.analyze.occupancy import Occupancy, occupancy
from tilefoundry.analyze.peak import Peak, peaks
from tilefoundry.analyze.program import Program, first_type
from tilefoundry.analyze.reuse import Window, windows
from tilefoundry.analyze.tiles import Access, access_of, footprint
from tilefoundry.analyze.traffic import Move, TrafficTable, traffic_table
from tilefoundry.analyze.work import Cost, Kind, WorkTable, work_table
from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, Expr, OpenDim, Sym
from tilefoundry.ir.node import CALL, PARAM, Node, nodes
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TensorType
from tilefoundry.ops.base import Context
from tilefoundry.targets import Target

FILLS = frozenset({"zeros", "full_like"})

ALL_AT_ONCE = 1 << 30
"""The wave of a machine whose processors are not known: every unit at once."""

Key = tuple[str, frozenset[tuple[Sym, Dim]]]


@dataclass(eq=False)
class Priced:
    """One function at one binding: its own tables, and totals with its callees."""

    program: Program
    level: str
    calls: dict[Node, Priced] = field(default_factory=dict)

    @cached_property
    def work(self) -> WorkTable:
        return work_table(self.program, self.level)

    @cached_property
    def traffic(self) -> TrafficTable:
        """Every statement's moves, without fills that are proven to be overwritten whole."""
        table = traffic_table(self.program)
        for fill in [m for m in table.moves if m.value.op.name in FILLS]:
            if self._overwritten(table, fill):
                table.drop(fill)
        return table

    def _overwritten(self, table: TrafficTable, fill: Move) -> bool:
        """Later writes cover every byte of ``fill``'s place before anything reads it."""
        program = self.program
        if fill.storage != program.target.default_storage or fill.site.nest:
            return False
        home = program.homes.of[fill.value]
        mine = [m for m in table.moves if program.homes.of.get(m.value) is home and m is not fill]
        covers = [m for m in mine if m.way == WRITE and self._whole(m)]
        done = min((self._after(m.site) for m in covers), default=0)
        reads = [m.site.at for m in mine if m.way != WRITE]
        reads += [
            s.at
            for s in program.flow.sites
            if s.node.op is CALL and home in map(program.homes.of.get, s.node.args)
        ]
        return bool(covers) and all(at > done for at in reads)

    def _whole(self, move: Move) -> bool:
        box = access_of(self.program, move)
        return box is not None and _distinct(self.program, box) == Figure(box.whole)

    def _after(self, site: Site) -> int:
        """The statement by which all trips of ``site`` are done."""
        return self.program.flow.loops[site.nest[0]][1] if site.nest else site.at

    @cached_property
    def peaks(self) -> list[Peak]:
        calls = {site: callee.peaks for site, callee in self._callees()}
        return peaks(self.program, calls, self._weights)

    @cached_property
    def _weights(self) -> dict[str, TensorType]:
        """Weights that only callees name, by name: one name is one tensor."""
        out: dict[str, TensorType] = {}
        for site, callee in self._callees():
            given = arguments(site.node)
            func = callee.program.func
            out |= {p.name: p.tensor for p in func.params if p.name in func.weights - given.keys()}
            out |= callee._weights
        mine = self.program.func.weights
        return {name: type for name, type in out.items() if name not in mine}

    @cached_property
    def occupancy(self) -> Occupancy | None:
        return occupancy(self.program, self.peaks)

    @cached_property
    def wave(self) -> int:
        """Units that run at once."""
        found = self.occupancy.wave if self.occupancy else None
        return found or ALL_AT_ONCE

    @cached_property
    def accesses(self) -> list[Access]:
        """Accesses of the storage that all units share whose part of a buffer is a box."""
        shared = self.program.target.default_storage
        mine = [m for m in self.traffic.moves if m.storage == shared]
        return [a for m in mine if (a := access_of(self.program, m))]

    @cached_property
    def windows(self) -> list[Window]:
        placed = [a for a in self.accesses if a.site.mesh.axes or a.site.nest]
        return windows(self.program, placed, self.wave, self.cache_bytes)

    @property
    def cache_bytes(self) -> int | None:
        """Capacity of the cache that all processors share, None if there is none known."""
        for cache in self.program.target.caches.values():
            if cache.scope == "device" and isinstance(cache.capacity.value, int):
                return cache.capacity.value
        return None

    # ---- with callees

    def _callees(self) -> list[tuple[Site, Priced]]:
        return [(s, self.calls[s.node]) for s in self.program.flow.sites if s.node in self.calls]

    @cached_property
    def cost(self) -> dict[Kind, Cost]:
        """Operations by kind, callees included; largest first where they compare."""
        out = dict(self.work.total)
        for site, callee in self._callees():
            for kind, cost in callee.cost.items():
                old = out.get(kind, Cost())
                new = self.scaled(site, cost)
                out[kind] = Cost(
                    old.logical + new.logical,
                    old.executed + new.executed,
                    old.per_unit + new.per_unit,
                )
        return out

    def scaled(self, site: Site, cost: Cost) -> Cost:
        """``cost`` of one call, over all calls that ``site`` makes."""
        return Cost(*(self._calling(site, x) for x in (cost.logical, cost.executed, cost.per_unit)))

    def _calling(self, site: Site, each: Figure) -> Figure:
        """A figure of one call, which may depend on the step, over all calls."""
        if each.value is None:
            return each
        try:
            made = self.program.summed(site.nest, each.value)
        except Undecidable as why:
            return undecided(why.reason)
        total = made.total(self.program.distinct(site))
        return Figure(total, joined((each.precision, made.precision)), each.reason)

    def moved(self, storage: str, way: str) -> tuple[Figure, Figure]:
        """Logical and executed bytes, callees included."""
        logical, executed = self.traffic.total(storage, way)
        for site, callee in self._callees():
            a, b = callee.moved(storage, way)
            made = self.scaled(site, Cost(a, b))
            logical, executed = logical + made.logical, executed + made.executed
        return logical, executed

    @property
    def storages(self) -> list[str]:
        """Storages that anything moves through, nearest to the units first."""
        used = set(self.traffic.storages)
        for _, callee in self._callees():
            used |= set(callee.storages)
        return [s for s in reversed(list(self.program.target.storages)) if s in used]

    @cached_property
    def compulsory(self) -> tuple[dict[str, Figure], dict[str, Figure]]:
        """Distinct bytes that must be read of each parameter and written of each result:
        no cache can avoid them. (Bytes by name; a weight of a callee by its own name.)"""
        program, shared = self.program, self.program.target.default_storage
        homes = program.homes.of
        returned = {homes[n]: n for n in program.flow.returned if n in homes}
        reads: dict[str, Figure] = {}
        writes: dict[str, Figure] = {}
        boxes = {a.move: a for a in self.accesses}
        for move in self.traffic.moves:
            if move.storage != shared:
                continue
            home = homes.get(move.value)
            box = boxes.get(move)
            if box is not None:
                home = box.home
            if home is None:
                continue
            table = reads if move.way == READ else writes
            if home.founder.op is PARAM if move.way == READ else home in returned:
                amount = _distinct(program, box) if box else _least(program, move)
                _keep(table, home.name, amount)
        for site, callee in self._callees():
            read, written = callee.compulsory
            args = arguments(site.node)
            for name, amount in read.items():
                home = homes.get(args[name]) if name in args else None
                if name not in args or (home and home.founder.op is PARAM):
                    _keep(reads, home.name if home else name, _one_call(program, amount))
            if homes.get(site.node) in returned:
                for name, amount in written.items():
                    made = _one_call(program, amount)
                    _keep(writes, f"{callee.program.func.name}.{name}", made)
        return reads, writes


def _keep(table: dict[str, Figure], name: str, amount: Figure) -> None:
    """The larger of two distinct-byte counts of one buffer: a lower bound on their union."""
    old = table.get(name)
    known = old.value if old else None
    larger = isinstance(known, int) and isinstance(amount.value, int) and amount.value > known
    if known is None or larger:
        table[name] = amount


def _least(program: Program, move: Move) -> Figure:
    """Bytes of one execution that are distinct whatever the data is."""
    found = program.nbytes(move.touch.type, (program.bind(move.touch.least),))
    most = program.most(found)
    if most.value is None:
        return most
    if most.precision != EXACT:  # no step is known to touch as much
        return Figure(0, LOWER)
    found = most.value
    home = program.homes.of[move.value]
    whole = program.nbytes(first_type(home.founder))
    return Figure(found, EXACT if found == whole else LOWER)


def _one_call(program: Program, amount: Figure) -> Figure:
    """What the largest of the calls touches, where calls touch parts of different sizes."""
    if amount.value is None:
        return amount
    most = program.most(amount.value)
    if most.value == amount.value:
        return amount
    return Figure(most.value, LOWER) if most.precision == EXACT else Figure(0, LOWER)


def _distinct(program: Program, access: Access) -> Figure:
    try:
        return footprint(program, access)
    except Undecidable as why:
        return undecided(why.reason)


def price(
    module: Module,
    func: Func,
    target: Target,
    context: Context,
    dims: dict[str, int],
    level: str,
) -> Priced:
    """``func`` and every function that it calls, each once per binding of its extents."""
    made: dict[Key, Priced] = {}
    first = Binding(_named(func, dims))
    stack: list[tuple[Func, Binding]] = [(func, first)]
    order: list[tuple[Key, Func, Binding]] = []
    seen: set[Key] = set()
    while stack:
        current, bind = stack.pop()
        current = variant(current, bind)
        key = _key(current, bind)
        order.append((key, current, bind))
        if key in seen:
            continue
        seen.add(key)
        for call in _calls(current):
            callee = module.funcs[str(call.attrs["func"])]
            stack.append((callee, _bound(callee, call, bind)))
    for key, current, bind in reversed(order):
        if key in made:
            continue
        program = Program(module, current, target, context, bind)
        made[key] = Priced(program, level)
    for key, current, bind in order:
        for call in _calls(current):
            callee = module.funcs[str(call.attrs["func"])]
            inner = _bound(callee, call, bind)
            made[key].calls[call] = made[_key(variant(callee, inner), inner)]
    return made[_key(variant(func, first), first)]


def _calls(func: Func) -> list[Node]:
    return [n for n in nodes(func.body) if n.op is CALL]


def arguments(call: Node) -> dict[str, Node]:
    """What a call node passes, by parameter name."""
    names = call.attrs["names"]
    assert isinstance(names, tuple)
    return dict(zip(names, call.args, strict=True))


def _key(func: Func, bind: Binding) -> Key:
    return func.name, frozenset(bind.env.items())


def _named(func: Func, dims: dict[str, int]) -> dict[Sym, Dim]:
    """``--dim`` values by symbol; refuses an unknown name and a value out of range."""
    known = {d.name: d for d in func.opens}
    env: dict[Sym, Dim] = {}
    for name, value in dims.items():
        if name not in known:
            have = " ".join(sorted(known)) or "none"
            refuse("analysis-dim-unknown", func.span, func=func.name, name=name, known=have)
        dim = known[name]
        if not dim.lo <= value <= dim.hi:
            refuse("analysis-dim-range", func.span, name=name, value=value, lo=dim.lo, hi=dim.hi)
        env[dim] = value
    return env


def _bound(callee: Func, call: Node, bind: Binding) -> Binding:
    """The callee's open extents in terms of the caller's."""
    env: dict[Sym, Dim] = {}
    params = {p.name: p for p in callee.params}
    for name, arg in arguments(call).items():
        for want, got in zip(params[name].tensor.shape, arg.tensor.shape, strict=True):
            bare = _bare(want)
            if bare is not None:
                env.setdefault(bare, bind(got))
    same = {s: d for s, d in env.items() if not (isinstance(d, Expr) and _bare(d) == s)}
    return Binding(same)


def _bare(extent: Dim) -> OpenDim | None:
    if isinstance(extent, Expr) and len(extent.terms) == 1:
        mono, coef = extent.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], OpenDim):
            return mono[0]
    return None


def variant(func: Func, bind: Binding) -> Func:
    """The specialisation that serves the binding; the function itself if it has none."""
    if not func.variants:
        return func
    dim = next(d for d in func.opens if d.name == func.variants[0].dim)
    value = bind(dim.expr())
    if isinstance(value, int):
        return next(v.func for v in func.variants if v.lo <= value <= v.hi)
    if func.returns.values:
        return func
    refuse(
        "analysis-variant-open",
        func.span,
        func=func.name,
        dim=dim.name,
        ranges=" ".join(f"{v.lo}..{v.hi}" for v in func.variants),
        some=func.variants[0].hi,
    )
