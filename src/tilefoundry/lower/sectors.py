"""Copies between device memory and registers, by the sectors that their accesses touch.

A cache keeps and moves whole sectors: a warp's access of runs that fill none of them costs as
much as one of twice the bytes, and a store of a part is merged into what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilefoundry.ir.expr import multiple_of
from tilefoundry.ir.mesh import Mesh
from tilefoundry.lower.banks import accesses
from tilefoundry.lower.notes import of_issues
from tilefoundry.targets.contract.place import Place
from tilefoundry.tir.program import Issue, PrimFunc

MOST = 16
"""Accesses of a copy that are looked at: those of a tile are alike."""


def touched(offsets: Sequence[int], bytes: int, size: int, start: int = 0) -> int:
    """Sectors of ``size`` bytes that accesses of ``bytes`` at these offsets touch."""
    ends = ((start + o, start + o + bytes - 1) for o in offsets)
    return len({n for lo, hi in ends for n in range(lo // size, hi // size + 1)})


def sectors(issue: Issue, mesh: Mesh, size: int, lanes: int) -> tuple[int, int, int] | None:
    """(bytes of an access in each lane, sectors that the worst takes, sectors that its bytes
    fill); None for what is no such copy, goes by an engine, or has open strides."""
    found = accesses(issue, mesh, "gmem", lanes)
    if found is None:
        return None
    _, where, bytes, lists = found
    steps = [s for modes in where.modes for _, s in modes]
    if where.bits % 8 or not all(isinstance(s, int) for s in steps):
        return None
    start = _start(where, size)
    seen = [(touched(o, bytes, size, start), -(-len({*o}) * bytes // size))
            for _, o in zip(range(MOST), lists, strict=False)]  # fmt: skip
    worst = max(seen, key=lambda x: x[0] / x[1], default=None)
    return None if worst is None else (bytes, *worst)


def _start(where: Place, size: int) -> int:
    """Where in a sector a tile begins, if it is not at its start always."""
    unit = where.bits // 8
    if isinstance(where.base, int):
        return where.base * unit % size
    return gcd(max(1, multiple_of(where.base)) * unit, size) % size


def notes(func: PrimFunc) -> list[str]:
    """A line for each copy that takes more sectors than its bytes fill, in program order."""
    fact, lanes = func.target.stated("memory.l2.sector"), func.target.groups.get("warp")
    if fact is None or fact.value is None or lanes is None or lanes.value is None:
        return []
    size, group = int(fact.value), int(lanes.value)

    def said(issue: Issue, mesh: Mesh) -> str | None:
        found = sectors(issue, mesh, size, group)
        if found is None or found[1] <= found[2]:
            return None
        return f"access={found[0]}B touched={found[1]} ideal={found[2]}"

    return of_issues(func, "sectors", said)


__all__ = ["notes", "sectors", "touched"]
