"""What is left when no role can go on: waits without arrivals, work still in flight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilefoundry.tir.program import Sync
from tilefoundry.verify.roles import Role, Site
from tilefoundry.verify.state import BULK_DONE, COPIED, OWN, WGMMA, Knowledge

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Machine


def finish(machine: Machine, blocked: Mapping[Role, Site]) -> None:
    """What is left when no role can go on."""
    for site in dict.fromkeys(blocked.values()):
        _stuck(machine, site)
    if blocked:
        return
    for phase in machine.phases.values():
        if phase.arrived or phase.issued or phase.expected:
            machine.findings.add(
                "sync-barrier", None, phase.by.place if phase.by else None,
                f"the last phase of {phase.barrier.name} is left incomplete: {phase.arrived} of "
                f"{phase.barrier.count} arrivals, {phase.issued} of {phase.expected} bytes",
                "make the count and the bytes those of one use",
            )  # fmt: skip
        elif phase.last_had_bytes and not any(
            k.common[phase.dim] >= phase.done
            for k in machine.roles.values()
            if k.role.cta == phase.cta
        ):
            machine.findings.add(
                "sync-drain", None, phase.by.place if phase.by else None,
                f"nobody waits for the last copies that complete on {phase.barrier.name}",
                "wait for every copy before the kernel ends",
            )  # fmt: skip
    _left(machine)
    for group in dict.fromkeys(machine.warpgroups.values()):
        group.finish()
    for me in machine.roles.values():
        _drained(machine, me)


def _left(machine: Machine) -> None:
    """A block's shared memory is there until its threads have ended: one of them must know
    that all that others did to it is over."""
    for (cta, site, _), done in machine.remote.items():
        inside = (k for k in machine.roles.values() if k.role.cta == cta)
        if not any(k.common[done.dim] >= done.time for k in inside):
            machine.findings.add(
                "sync-drain", site.place, None,
                "a CTA may have ended when another of its cluster reaches its shared memory",
                "a barrier of the cluster (sync_cluster) at the end",
            )  # fmt: skip


def _drained(machine: Machine, me: Knowledge) -> None:
    left: list[tuple[str, str]] = []
    issued = max((g.issued for g in me.bulk.values()), default=0)
    if issued > me.elect[BULK_DONE - OWN]:
        left.append(("a bulk store may be in flight", "bulk_commit, then bulk_wait(pending=0)"))
    if me.wgmma.issued > me.levels[0][WGMMA]:
        left.append(("a wgmma may be in flight", "wgmma_commit, then wgmma_wait(pending=0)"))
    known = max(k.common[me.base + COPIED] for k in machine.roles.values())
    if me.copies.issued > max(known, me.levels[0][COPIED]):
        left.append(("a cp.async may be in flight", "async_commit, then async_wait(pending=0)"))
    for missing, fix in left:
        place = me.last_async.place if me.last_async else None
        machine.findings.add("sync-drain", place, None, f"{missing} when the kernel ends", fix)


def _stuck(machine: Machine, site: Site) -> None:
    sync = site.stmt
    name = sync.barrier.name if isinstance(sync, Sync) and sync.barrier is not None else "it"
    for phase in machine.phases.values():
        if (
            isinstance(sync, Sync)
            and phase.barrier is sync.barrier
            and (phase.arrived >= phase.barrier.count and phase.issued < phase.expected)
        ):
            machine.findings.add(
                "sync-barrier", site.place, None,
                f"{phase.issued} bytes arrive in a phase of {name} that expects {phase.expected}",
                "expect the bytes of all copies of the phase",
            )  # fmt: skip
            return
    machine.findings.add(
        "sync-deadlock", site.place, None, f"no arrival that satisfies {name} is reachable",
        "arrive once for every wait, on every path, zero trips included",
    )  # fmt: skip


__all__ = ["finish"]
