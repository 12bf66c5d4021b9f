"""Matrix instructions for a site: parameters, who executes them, and the operands' places.

Every proposal is put to the one legality routine; what it refuses is kept, so that a site
without a plan can say the first clause that each instruction does not meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tilefoundry.ir.mesh import Axis, Mesh, arrange, enter
from tilefoundry.ir.types import TensorType
from tilefoundry.plan.site import Site
from tilefoundry.plan.tiles import Cut, Tile, fragment
from tilefoundry.targets.contract.legality import Fit, Unmet, judge, parameters
from tilefoundry.targets.contract.pattern import (
    FragmentPattern,
    MmaAtom,
    SharedPattern,
    TensorPattern,
)
from tilefoundry.targets.contract.registry import contracts
from tilefoundry.targets.contract.render import ENUMS
from tilefoundry.targets.target import Target

Grid = tuple[int, int]
"""Groups along m and along n."""

LARGEST_N = 256


@dataclass(frozen=True)
class Use:
    """An instruction with its parameters; ``patterns`` of A, B and C under them."""

    atom: MmaAtom
    params: Mapping[str, Any]
    env: Mapping[str, Any]
    patterns: Mapping[str, TensorPattern]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.atom.shape(self.env)

    def in_registers(self, operand: str) -> bool:
        return isinstance(self.patterns[operand].arrangements[0], FragmentPattern)

    def major(self, operand: str) -> str:
        """``K`` or ``MN`` for an operand in shared memory, empty in registers."""
        first = self.patterns[operand].arrangements[0]
        return first.major if isinstance(first, SharedPattern) else ""

    def text(self) -> str:
        """As the author writes it."""
        family = self.atom.path.rpartition(".")[0]
        words: list[str] = []
        for name, value in self.params.items():
            if name in ENUMS:
                words.append(f"{name}=T.{family}.{ENUMS[name]}.{value}")
            else:
                words.append(f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}")
        return f"T.{self.atom.path}({', '.join(words)})"

    def words(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.params.items())


@dataclass(frozen=True)
class Consumers:
    """Groups of the instruction's units: ``grid`` of them, their mesh, the text of its
    arrangement, and per axis of the tile the axis of groups that splits it."""

    grid: Grid
    mesh: Mesh
    layout: str
    names: str
    cuts: tuple[Cut, Cut]
    atom: tuple[Axis, ...]

    @property
    def groups(self) -> int:
        return prod(self.grid)


@dataclass(frozen=True)
class Compute:
    """A legal way to multiply: ``fit`` is the legality routine's answer; fragments of C and,
    where the instruction takes them from registers, of A and B."""

    use: Use
    consumers: Consumers
    fit: Fit
    C: Tile
    A: Tile | None
    B: Tile | None

    @property
    def fragments(self) -> tuple[Tile, ...]:
        return tuple(t for t in (self.A, self.B) if t is not None)


def uses(site: Site, target: Target, kept: dict[str, Unmet]) -> Iterator[Use]:
    """Every instruction of the target with every binding of its parameters that its domains
    allow on the site's types; n as large as each split of the columns lets it be. ``kept``
    takes the deepest clause that each instruction does not meet."""
    lhs, rhs = operands(site)
    for atom in (c for c in contracts(target) if isinstance(c, MmaAtom)):
        names = {p.name for p in atom.parameters}
        columns = site.extents[1]
        sizes: list[int | None] = [None]
        if "n" in names:
            sizes = [*dict.fromkeys(_widest(columns // g) for g in range(1, 9) if columns % g == 0)]
            sizes = [n for n in sizes if n] or [8]
        for n in sizes:
            given = {"n": n} if n else {}
            for env in parameters(atom, lhs, site.acc.tensor, given):
                if isinstance(env, Unmet):
                    keep(kept, atom, env)
                    continue
                params = {p.name: env[p.name] for p in atom.parameters}
                full = atom.completed(env, lhs.dtype.bits)
                patterns = {x: atom.operand(x, full) for x in "ABC"}
                use = Use(atom, params, full, patterns)
                unmet = _outside(use, site, lhs, rhs)
                if unmet is None:
                    yield use
                else:
                    keep(kept, atom, unmet)


def keep(kept: dict[str, Unmet], atom: MmaAtom, unmet: Unmet) -> None:
    old = kept.get(atom.path)
    if old is None or unmet.depth > old.depth:
        kept[atom.path] = unmet


def operands(site: Site) -> tuple[TensorType, TensorType]:
    """The tiles as (m, k) and (k, n)."""
    return tuple(  # type: ignore[return-value]
        x.tile.with_(shape=x.tile.shape[::-1]) if x.flipped else x.tile for x in site.loads
    )


def _widest(columns: int) -> int:
    """The largest n an instruction may have that divides ``columns``, 0 if there is none."""
    return next((n for n in range(LARGEST_N, 0, -8) if columns % n == 0), 0)


def _outside(use: Use, site: Site, lhs: TensorType, rhs: TensorType) -> Unmet | None:
    """The clause up to the tile's shape that fails: layouts are the plan's to choose."""
    places = {x: use.patterns[x].storage for x in "ABC"}
    found = judge(
        use.atom,
        units_of(site, use, (1, 1)).mesh,
        lhs.with_(storage=places["A"], layout=None),
        rhs.with_(storage=places["B"], layout=None),
        site.acc.tensor.with_(storage=places["C"], layout=None),
        use.params,
    )
    if isinstance(found, Unmet) and found.clause not in "ABC":
        return found
    return None


def units_of(site: Site, use: Use, grid: Grid, first: int = 0) -> Consumers:
    """The mesh of ``grid`` groups from unit ``first`` on, rows of groups outermost."""
    pattern = use.atom.execution_mesh
    names: list[str] = []
    lead: list[str] = [w for w, e in zip(("row", "col"), grid, strict=True) if e > 1]
    lead = ["group"] if len(lead) == 1 else lead
    for extent, stride in zip(pattern.shape, pattern.strides, strict=True):
        names.append("warp" if stride >= 32 else f"lane{extent}")
    extents = [e for e in grid if e > 1]
    shape = [*extents, *pattern.shape]
    steps = [pattern.units * prod(extents[i + 1 :]) for i in range(len(extents))]
    strides = [*steps, *pattern.strides]
    level = pattern.level
    axes = arrange(level, tuple(shape), (*lead, *names), tuple(strides), first)
    outside = Mesh(tuple(a for a in site.mesh.axes if a.level != level), site.mesh.sizes)
    mesh = enter(outside, Mesh(axes, site.mesh.sizes), _levels(site, level))
    rest = list(axes[: len(extents)])
    cuts = [Cut(rest.pop(0) if extent > 1 else None) for extent in grid]
    compact = all(s == prod(shape[i + 1 :]) for i, s in enumerate(strides))
    body = f"({', '.join(map(str, shape))})"
    layout = body if compact else f"({body}, ({', '.join(map(str, strides))}))"
    quoted = ", ".join(f'"{n}"' for n in (*lead, *names))
    return Consumers(grid, mesh, layout, f"({quoted})", (cuts[0], cuts[1]), axes[len(extents) :])


def _levels(site: Site, level: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*site.mesh.levels, level)))


def computes(
    site: Site,
    use: Use,
    consumers: Consumers,
    rings: tuple[Tile, Tile],
    binding: str,
) -> Compute | Unmet:
    """The use by ``consumers`` on operands that lie as ``rings``, put to the contract."""
    env = use.env
    rows, columns = consumers.cuts
    none = Cut(None)
    cuts = {"A": (rows, none), "B": (none, columns), "C": (rows, columns)}
    lhs, rhs = operands(site)
    whole = {"A": lhs, "B": rhs, "C": site.acc.tensor}
    made: dict[str, Tile | None] = {}
    types: dict[str, TensorType] = {}
    for x in "ABC":
        if use.in_registers(x):
            pattern = use.patterns[x].arrangements[0]
            assert isinstance(pattern, FragmentPattern)
            tile = fragment(pattern, env, whole[x], cuts[x], consumers.atom, binding,
                            use.patterns[x].storage)  # fmt: skip
            if tile is None:
                return Unmet("shape", "a tile that the groups divide", f"{consumers.grid} groups")
            made[x], types[x] = tile, tile.type
        else:
            ring, load = rings["AB".index(x)], site.loads["AB".index(x)]
            types[x] = ring.flipped if load.flipped else ring.type
    fit = judge(use.atom, consumers.mesh, types["A"], types["B"], types["C"], use.params)
    if isinstance(fit, Unmet):
        return fit
    held = made["C"]
    assert held is not None
    return Compute(use, consumers, fit, held, made.get("A"), made.get("B"))


def grids(site: Site, use: Use, most: int) -> list[Grid]:
    """Arrangements of up to ``most`` units: every one of large groups, with n as large as it
    lets n be; of small groups, for each number of them, the one that reads least."""
    m, n, _ = site.extents
    rows, columns, _ = use.shape
    units = use.atom.execution_mesh.units
    chosen = use.params.get("n")
    found = [
        (a, b)
        for a in range(1, m // rows + 1)
        if m // rows % a == 0
        for b in range(1, n // columns + 1)
        if n // columns % b == 0 and a * b * units <= most and chosen in (None, _widest(n // b))
    ]
    if not (use.in_registers("A") and use.in_registers("B")):
        return found
    best: dict[int, Grid] = {}
    for a, b in found:
        old = best.get(a * b)
        if old is None or (b * m + a * n, a) < (old[1] * m + old[0] * n, old[0]):
            best[a * b] = (a, b)
    return [best[c] for c in sorted(best) if c & (c - 1) == 0]
