"""Accesses to shared and device memory, and whether each is ordered after the last ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilefoundry.tir.program import Buffer
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.roles import UNIT, WARP, WARPGROUP, Site
from tilefoundry.verify.state import (
    COPIED,
    COPIED_FENCED,
    FENCED,
    OWN,
    PLAIN,
    READ,
    READ_FENCED,
    WGMMA,
    Knowledge,
    TooLarge,
)
from tilefoundry.verify.touch import Box, Touch, apart, meet, separate, within, without

Unit: TypeAlias = tuple[Buffer, int]
SIZES = (1, WARP, WARPGROUP)
FENCES = {PLAIN: FENCED, READ: READ_FENCED}
PAIRS = 2_000_000
"""Pairs of accesses that one run may compare before it is called too large."""
PARTS = 64
"""Boxes up to which the rest of a read is followed that nobody has written yet."""
ADVICE = {
    "sync-race": "hand over by a barrier after the first and before the second",
    "sync-proxy": "fence_proxy by the threads of the first, before they hand over",
    "smem-plan": "give the two buffers bytes of their own, or order their uses",
}


@dataclass(slots=True)
class Access:
    """One access: ``dim`` is the dimension (of ``knowledge``'s role, or absolute if that is
    None) in which it is complete at ``time``."""

    site: Site
    touch: Touch
    box: Box
    write: bool
    knowledge: Knowledge | None
    dim: int
    time: int
    plain: bool


def _covers(new: Access) -> bool:
    """The role writes every element of the box: no other role shares the statement, and the
    registers are those of its threads alone."""
    if new.knowledge is None or new.knowledge.role.members != new.site.members:
        return False
    other = new.touch.partner
    if other is None or not other.buffer.mesh.at(UNIT):
        return True
    return len(new.site.members) == other.buffer.mesh.count(UNIT)


def _dealt(old: Access, new: Access) -> bool:
    """Two roles execute one statement on one window: each of its elements belongs to one of its
    threads, or several hold the same value."""
    return (
        old.site is new.site
        and old.knowledge is not new.knowledge
        and _cta(old) == _cta(new)
        and old.touch.view is new.touch.view
        and _corner(old) == _corner(new)
        and old.plain
        and new.plain
    )


def _corner(access: Access) -> tuple[int, ...]:
    """Where the window of an access starts, whichever part of it the role's threads hold."""
    lows = tuple(low for low, _ in access.box)
    by = access.touch.shaved
    return tuple(low - n for low, n in zip(lows, by, strict=True)) if by else lows


def _cta(access: Access) -> int | None:
    return None if access.knowledge is None else access.knowledge.role.cta


def _written(new: Access, filled: set[Box]) -> bool:
    """All that an access reads lies in what was written; some of it, where it is not known
    what is read."""
    if None in new.touch.reach:
        return any(meet(box, new.box) for box in filled)
    left = [new.box]
    for box in filled:
        left = [part for old in left for part in without(old, box)]
        if not left or len(left) > PARTS:
            return True
    return not left


def unwritten(findings: Findings, site: Site, touch: Touch) -> None:
    """Report a read of what nobody has written."""
    findings.add(
        "read-unwritten", site.place, None,
        f"{touch.buffer.name} is read where nothing has been written",
        "write it first, on every path, zero trips included",
    )  # fmt: skip


class Memory:
    """The latest accesses of each slot of each buffer that more than one may touch."""

    def __init__(self, findings: Findings, overlaps: dict[Unit, list[Unit]]) -> None:
        self.findings, self.overlaps = findings, overlaps
        self.held: dict[Unit, list[Access]] = {}
        self.spoilt: dict[Unit, Access] = {}
        self.filled: dict[Unit, set[Box]] = {}
        self._apart: dict[tuple[object, ...], bool] = {}
        self.pairs = 0

    def access(self, new: Access, slot: int, who: Knowledge, elected: bool) -> None:
        """Check ``new`` against what was done before, and remember it."""
        unit = (new.touch.buffer, slot)
        filled = self.filled.setdefault(unit, set())
        if new.write:
            filled.add(new.box)
        elif unit[0].storage != "gmem" and not _written(new, filled):
            # device memory may have been written by another block
            unwritten(self.findings, new.site, new.touch)
        held = self.held.setdefault(unit, [])
        self.pairs += len(held)
        if self.pairs > PAIRS:
            raise TooLarge
        kept: list[Access] = []
        for old in held:
            if (
                old.site is new.site
                and old.touch is new.touch
                and old.box == new.box
                and (old.knowledge is new.knowledge and old.dim == new.dim)
            ):
                if (new.write or old.write) and not self._same_thread(new):
                    self._check(old, new, who, elected, "sync-race")
                continue
            if (new.write or old.write) and meet(old.box, new.box) and not _dealt(old, new):
                ordered = self._check(old, new, who, elected, "sync-race")
                if ordered and new.write and within(old.box, new.box) and (
                    elected or _covers(new)
                ):  # fmt: skip
                    continue
            kept.append(old)
        kept.append(new)
        self.held[unit] = kept
        if self.overlaps:
            self._aliases(unit, new, who, elected)

    @staticmethod
    def _same_thread(new: Access) -> bool:
        # the same threads write the same elements again
        return new.plain and new.dim in FENCES

    def _aliases(self, unit: Unit, new: Access, who: Knowledge, elected: bool) -> None:
        for other in self.overlaps.get(unit, ()):
            for old in self.held.get(other, ()):
                if new.write or old.write:
                    self._check(old, new, who, elected, "smem-plan")
            if new.write:
                self.spoilt[other] = new
        if new.write:
            self.spoilt.pop(unit, None)
        elif unit in self.spoilt:
            self.findings.add(
                "smem-plan", self.spoilt[unit].site.place, new.site.place,
                f"{unit[0].name} is read after bytes of it were overwritten",
                ADVICE["smem-plan"],
            )  # fmt: skip

    def _check(self, old: Access, new: Access, who: Knowledge, elected: bool, code: str) -> bool:
        if self._ordered(old, new, who, elected, fenced=True) or self._strangers(old, new):
            return True
        name = new.touch.buffer.name
        if self._ordered(old, new, who, elected, fenced=False):
            code = "sync-proxy"
            missing = f"no proxy fence between the plain access to {name} and the asynchronous one"
        else:
            missing = f"nothing orders the two accesses to {name}"
        self.findings.add(code, old.site.place, new.site.place, missing, ADVICE[code])
        return False

    def _ordered(self, old: Access, new: Access, who: Knowledge, elected: bool,
                 fenced: bool) -> bool:  # fmt: skip
        if old.knowledge is None:
            seen = who.common[old.dim]
            # to write over bytes, it is enough to know that they are there
            return (max(seen, who.common[old.dim + 1]) if new.write else seen) >= old.time
        dim = old.dim
        if not new.plain and fenced and old.plain:
            # no thread can fence what completes by itself: the reader does
            seen = who.fence_seen.get(old.knowledge.base + COPIED, 0)
            if dim == COPIED and min(seen, who.common[old.knowledge.base + dim]) >= old.time:
                return True
            dim = FENCES.get(dim, COPIED_FENCED)
        at = old.knowledge.base + dim
        if who.common[at] >= old.time:
            return True
        if old.knowledge is not who:
            return False
        if dim >= OWN:
            return elected and who.elect[dim - OWN] >= old.time
        if who.levels[who.top][dim] >= old.time:
            return True
        if elected and not new.plain:
            return False
        least = 2 if new.dim == WGMMA or dim == WGMMA else 0
        for level in range(min(who.top, 2), least - 1, -1):
            if who.levels[level][dim] >= old.time and self._disjoint(old, new, who, level):
                return True
        return False

    def _strangers(self, old: Access, new: Access) -> bool:
        """The threads of two roles touch different elements."""
        a, b = old.knowledge, new.knowledge
        if a is None or b is None or a is b or not (old.plain and new.plain):
            return False
        if a.role.cta != b.role.cta:
            return False
        if old.touch.buffer is not new.touch.buffer:
            return False
        shift = tuple(y[0] - x[0] for x, y in zip(old.box, new.box, strict=True))
        key = (old.touch, new.touch, shift)
        if key not in self._apart:
            self._apart[key] = separate(old.touch, new.touch, a.role, b.role, shift)
        return self._apart[key]

    def _disjoint(self, old: Access, new: Access, who: Knowledge, level: int) -> bool:
        shift = tuple(b[0] - a[0] for a, b in zip(old.box, new.box, strict=True))
        if old.touch.buffer is not new.touch.buffer:
            return False
        key = (old.touch, new.touch, who.role, level, shift)
        if key not in self._apart:
            self._apart[key] = apart(old.touch, new.touch, who.role, SIZES[level], shift)
        return self._apart[key]


__all__ = ["ADVICE", "Access", "Memory", "Unit", "unwritten"]
