"""Registers that a tensor core may be using: what threads may not do to them meanwhile.

PTX ISA, wgmma.fence, wgmma.wait_group: accumulator and register operands are untouched until
the group retires, and a fence stands between a thread's use of them and the next wgmma.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilefoundry.interpret.log import Reach
from tilefoundry.interpret.report import describe
from tilefoundry.tir.program import Issue, View

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp


def fenced(warp: Warp, stmt: Issue) -> None:
    """Registers of the operands are fenced since they were touched."""
    buffers = [stmt.writes[0].buffer]
    buffers += [r.buffer for r in stmt.reads if isinstance(r, View) and r.storage == "rmem"]
    dirty = [b.name for b in dict.fromkeys(buffers) if warp.touched is None or b in warp.touched]
    if dirty:
        says = f"{describe(stmt)} uses registers of {', '.join(dirty)} that are not fenced"
        warp.report("register-hazard", says, stmt, "a wgmma_fence before it", dirty[0])


def touch(warp: Warp, stmt: Issue, reach: Reach, write: bool, lanes: int) -> None:
    """The lanes use registers: no wgmma that may be in flight has them."""
    if warp.touched is not None:
        warp.touched.add(reach.buffer)
    keep = []
    for work in warp.flight:
        if all(clock.done & work.write_bit for _, clock in warp.known.of(lanes)):
            continue
        keep.append(work)
        for other, written in work.registers:
            if other.buffer is reach.buffer and (write or written) and _share(warp, other, reach):
                says = (
                    f"{describe(stmt)} by {warp.who(lanes)} "
                    f"{'writes' if write else 'reads'} registers of {reach.buffer.name} "
                    f"while {describe(work.issue)} is in flight"
                )
                warp.report("register-hazard", says, stmt, "a wgmma_wait that retires it first",
                            reach.buffer.name)  # fmt: skip
    if lanes == (1 << warp.size) - 1:
        warp.flight = keep


def _share(warp: Warp, a: Reach, b: Reach) -> bool:
    cache = warp.kernel.places.cache
    key = ("registers", a, b)
    if key not in cache:
        cache[key] = bool(np.isin(b.elements, a.elements).any())
    return cache[key]
