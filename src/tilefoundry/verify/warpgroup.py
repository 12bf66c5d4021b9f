"""A warpgroup of several roles: its wgmma statements are still those of all 128 threads.

PTX ISA, wgmma: mma_async, fence, commit_group and wait_group are ``.aligned``: all threads of
the warpgroup execute the same instruction. A wgmma runs once all parts have issued it, and
when a part has seen it retired, it has done all its reads, for every part. What each part
knows when it issues stays its own: none may issue before it knows that its operands are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tilefoundry.tir.program import Sync
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.roles import Role, Site
from tilefoundry.verify.state import CONTROL, WGMMA, Knowledge, Ready

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Op


class Warpgroup:
    """The parts of one warpgroup, each with the wgmma statements that it has executed."""

    def __init__(self, findings: Findings, roles: Mapping[Role, Knowledge],
                 parts: tuple[Role, ...]) -> None:  # fmt: skip
        self.findings, self.roles, self.parts = findings, roles, parts
        self.log: list[tuple[Site, tuple[object, ...]]] = []
        """Statements with the operands that they read, in order, as the first part came."""
        self.at = dict.fromkeys(parts, 0)
        self.control: dict[Role, list[int]] = {role: [] for role in parts}
        """The control that each part had passed when it issued each wgmma."""
        self.parted = False

    def step(self, me: Knowledge, site: Site, operands: tuple[object, ...]) -> None:
        """A part comes to a statement of the warpgroup; the others must come to the same."""
        at = self.at[me.role]
        self.at[me.role] = at + 1
        if at == len(self.log):
            self.log.append((site, operands))
        elif self.log[at] != (site, operands):
            self._differ(self.log[at][0], site)

    def issued(self, me: Knowledge) -> None:
        self.control[me.role].append(me.levels[0][CONTROL])

    def joined(self, sync: Sync, site: Site, op: Op) -> Op:
        """``op``, what a part does for itself, as a statement of the warpgroup."""

        def run(me: Knowledge) -> Iterator[tuple[Ready, Site]]:
            self.step(me, site, ())
            if sync.kind == "wgmma_wait":
                yield from self._retire(me, site, me.wgmma.done(sync.pending))
            op(me)

        return run

    def _retire(self, me: Knowledge, site: Site, last: int) -> Iterator[tuple[Ready, Site]]:
        """The wgmmas up to number ``last`` are over: all parts had issued them."""
        if not last:
            return
        others = [self.roles[r] for r in self.parts if r is not me.role]

        def ready() -> bool:
            return all(o.wgmma.issued >= last for o in others)

        if not ready():
            yield ready, site
        for o in others:
            for dim, time in ((WGMMA, last), (CONTROL, self.control[o.role][last - 1])):
                me.common[o.base + dim] = max(me.common[o.base + dim], time)

    def finish(self) -> None:
        """At the end, all parts have come equally far."""
        for at in self.at.values():
            if at < len(self.log):
                self._differ(self.log[at][0], None)

    def _differ(self, first: Site, second: Site | None) -> None:
        if self.parted:
            return
        self.parted = True
        self.findings.add(
            "sync-participants", first.place, second.place if second else None,
            "not all threads of the warpgroup execute the same wgmma statements",
            "let all 128 threads of the group come to it the same way",
        )  # fmt: skip


__all__ = ["Warpgroup"]
