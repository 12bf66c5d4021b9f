"""Contracts of instructions without a fixed tile: each unit works on what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.types import IMMEDIATE, TensorType
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.target import THREAD

WARP = 32


def any_units(level: str) -> str:
    """The pattern of any arrangement of units of one level."""
    return f"Mesh(('{level}',), ComposedLayout(None, p0, Layout(((*g,),), ((*gs,),))))"


def unmet_mesh(level: str, mesh: Mesh) -> Unmet | None:
    """Units of ``level`` must be in force."""
    if mesh.at(level):
        return None
    count = dict(mesh.sizes).get(level, WARP)
    fix = f'with Mesh(("{level}",), layout=({count},), names=("u",)) as units:'
    return Unmet("mesh", any_units(level), str(mesh), fix)


@dataclass(frozen=True)
class UnitInstr:
    """``ops`` are the operations it can carry out, ``meaning`` the one that its parameters
    are those of; operands and result live in one of ``storages``. With ``combines`` units
    may also join what they hold along mesh axes (a reduction). ``reads`` are storages that
    operands may be read from as well; a result stated there is stored from registers.
    ``level``: whose units issue it; None: the innermost."""

    path: str
    meaning: str
    ops: tuple[str, ...]
    storages: tuple[str, ...]
    rank: int
    capability: str | None = None
    source: str = ""
    combines: bool = False
    reads: tuple[str, ...] = ()
    level: str | None = None
    c: CText | None = None
    """How C says it, where one call does."""
    dtypes: tuple[str, ...] = ()
    """Element types of operands and result; empty: any."""

    def judge(
        self, level: str, mesh: Mesh, operands: Sequence[TensorType | None], result: TensorType
    ) -> Unmet | None:
        """None if units of ``level`` may issue it, else the clause that is not met."""
        unmet = unmet_mesh(self.level or level, mesh)
        if unmet is not None:
            return unmet
        for type in (*operands, result):
            legal = (*self.storages, *self.reads)
            if type is not None and type.storage not in (*legal, IMMEDIATE):
                want = " or ".join(legal)
                fix = f'tf.reshard(..., storage="{self.storages[-1]}")'
                return Unmet("storage", f"operands in {want}", f"{type}", fix)
            if type is not None and self.dtypes and type.dtype.name not in self.dtypes:
                want = " or ".join(self.dtypes)
                fix = f'tf.cast(..., "{self.dtypes[0]}") first'
                return Unmet("dtype", f"elements of {want}", f"{type}", fix)
        return None


# Reductions over mesh axes


SCOPES = ("thread", "warp", "core", "cta", "cluster", "grid")
"""How far units meet: each alone, by shuffles (the lanes of a warp, or of a core's vectors),
through shared memory, through the cluster's shared memories, through global memory."""
CLUSTER = "cluster"
"""The level whose units' CTAs reach each other's shared memory."""


def scope_of(mesh: Mesh, over: Sequence[Axis], level: str = THREAD) -> str:
    """The narrowest scope in which the units along the axes ``over`` can be combined;
    ``level`` is the innermost level of the target.

    Lanes combine by shuffles where each axis is a power of two, so that it is one bit field
    of the lane's number, and lies inside a warp; where a target has vectors for threads, all
    lanes of one outer unit do.
    """
    real = [a for a in over if a.extent > 1]
    if not real:
        return THREAD
    levels = {a.level for a in real}
    if levels == {level} and level != THREAD:
        return next((x for x in reversed(mesh.levels) if x != level), "core")
    if levels == {THREAD}:
        return "warp" if all(_in_warp(a, mesh) for a in real) else "cta"
    inside = CLUSTER in mesh.levels and CLUSTER not in levels and "gpu" not in levels
    return CLUSTER if inside else "grid"


def _in_warp(axis: Axis, mesh: Mesh) -> bool:
    """Whether the coordinate on ``axis`` is a bit field of the lane's number."""
    fields = _bits(axis.extent) and _bits(axis.stride) and axis.extent * axis.stride <= WARP
    axes = mesh.at(axis.level)
    if not fields or axis not in axes:
        return False
    inner = prod(a.extent for a in axes[axes.index(axis) + 1 :])
    return all(
        unit // axis.stride % axis.extent == n // inner % axis.extent
        for n, unit in enumerate(mesh.units(axis.level))
    )


def _bits(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _lanes(mesh: Mesh, over: Sequence[Axis]) -> int:
    """Units combined by shuffles before the rest meets."""
    count = 1
    for a in over:
        if a.level == "thread" and _in_warp(a, mesh):
            count *= a.extent
    return count


def scratch_bytes(mesh: Mesh, over: Sequence[Axis], result: TensorType, level: str = THREAD) -> int:
    """Shared memory of one CTA to combine ``result`` along the axes ``over``.

    Lanes combine first; then each thread that is left over writes the elements it holds of
    the result (one accumulator each), and reads those of the others.
    """
    scope = scope_of(mesh, over, level)
    if level != THREAD or scope in (THREAD, "warp"):
        return 0
    if scope == CLUSTER:  # the terms of each CTA, and what its threads combine them through
        inner = [a for a in over if a.level == level]
        terms = -(-prod(int(e) for e in result.shape) * accumulator_bits(result) // 8)  # type: ignore[arg-type]
        return terms + scratch_bytes(mesh, inner, result, level)
    held = 1
    for extent in result.local_shape:
        held *= int(extent)  # type: ignore[arg-type]
    writers = max(1, mesh.count("thread") // _lanes(mesh, over))
    return writers * held * accumulator_bits(result) // 8


def workspace_bytes(
    mesh: Mesh, over: Sequence[Axis], result: TensorType, level: str = THREAD
) -> int:
    """Global memory of a reduction in scope ``grid``: one partial result of each CTA, and a
    4-byte counter for each group of CTAs that meet; 0 for narrower scopes."""
    if scope_of(mesh, over, level) != "grid":
        return 0
    ctas = 1
    for a in mesh.axes:
        ctas *= a.extent if a.level != level else 1
    joined = 1
    for a in over:
        joined *= a.extent if a.level != level else 1
    held = 1
    for extent in result.local_shape:
        held *= int(extent)  # type: ignore[arg-type]
    threads = 1
    for a in mesh.at(level):
        threads *= 1 if a in over else a.extent
    return ctas * threads * held * accumulator_bits(result) // 8 + ctas // joined * 4


def accumulator_bits(result: TensorType) -> int:
    """Width of one term while it is combined: 16-bit floats are added in float32."""
    return max(32, result.dtype.bits) if result.dtype.is_float else result.dtype.bits
