"""cp.async.bulk: contiguous bytes to or from shared memory.

PTX ISA, cp.async.bulk: both addresses and the size are multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian

from tilefoundry.ir.expr import Dim, multiple_of
from tilefoundry.targets.contract.copy import Copy, CopyInstr, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.runs import Piece, pieces, run_of

UNIT = 16


@dataclass(frozen=True)
class BulkRuns:
    """``bytes`` of one issue, and the steps from issue to issue, fastest first."""

    bytes: int
    outer: tuple[Piece, ...]
    rank: int

    @property
    def repeat(self) -> tuple[int, ...]:
        out = [1] * self.rank
        for p in self.outer:
            out[p.axis] *= p.extent
        return tuple(out)

    def starts(self, order: Sequence[int] | None = None) -> tuple[tuple[int, ...], ...]:
        """The tile's coordinate at which each issue begins, nested over ``order``."""
        found: list[tuple[int, ...]] = []
        outward = tuple(reversed(self.outer))
        for turn in cartesian(*(range(p.extent) for p in outward)):
            at = [0] * self.rank
            for t, p in zip(turn, outward, strict=True):
                at[p.axis] += t * p.inner
            found.append(tuple(at))
        return tuple(sorted(found, key=lambda at: tuple(at[a] for a in order)) if order else found)

    def text(self) -> str:
        count = 1
        for p in self.outer:
            count *= p.extent
        return f"bytes={self.bytes} issues={count}"


def bulk_runs(source: Place, target: Place) -> BulkRuns | Unmet:
    """The contiguous runs that both places share."""
    for p in (source, target):
        if p.swizzle is not None and p.swizzle.B:
            return Unmet("swizzle", "shared memory without swizzle", f"{p.swizzle}",
                         "leave the swizzle out, or use T.copy_async_tensor")  # fmt: skip
    parts = pieces([source, target])
    if parts is None:
        return Unmet("layout", "modes that nest on both sides", "modes that straddle")
    run = run_of(parts)
    size = run.count * source.bits // 8
    if run.count * source.bits % (8 * UNIT):
        fix = f"Layout({source.shape})"
        return Unmet("run", f"runs contiguous on both sides, multiples of {UNIT} bytes",
                     f"runs of {size} bytes", fix)  # fmt: skip
    steps: list[Dim] = [s for p in run.outer for s in p.steps]
    offs = [s for s in steps if multiple_of(s) * source.bits % (8 * UNIT)]
    if offs or source.align % UNIT or target.align % UNIT:
        got = f"runs {offs[0]} elements apart" if offs else "a window that starts between"
        return Unmet("alignment", f"every run at a multiple of {UNIT} bytes", got)
    return BulkRuns(size, run.outer, len(source.modes))


def plan(copy: Copy) -> BulkRuns | Unmet:
    """A load or a store in contiguous runs."""
    bad = same_bits(copy.source, copy.target)
    source, target = copy.source.place(), copy.target.place()
    for found in (bad, source, target):
        if isinstance(found, Unmet):
            return found
    assert isinstance(source, Place) and isinstance(target, Place)
    return bulk_runs(source, target)


COPY_ASYNC_BULK = CopyInstr(
    "copy_async_bulk",
    (("gmem", "smem"), ("smem", "gmem")),
    22,
    plan,
    (
        "runs contiguous on both sides, no swizzle",
        "size and both addresses multiples of 16 bytes",
    ),
    "cp.async.bulk",
    ("mbarrier bytes", "bulk group"),
    "async",
    "PTX ISA, cp.async.bulk",
    UNIT,
)
CONTRACTS = (COPY_ASYNC_BULK,)
