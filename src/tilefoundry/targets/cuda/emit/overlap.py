"""Kernels that start while the one before them in their stream ends.

Launched so (CUDA programming guide, "Programmatic Dependent Launch"), a kernel's CTAs take the
places of those that have ended, initialise their barriers, and wait (``griddepcontrol.wait``)
for the end of the whole kernel before, whose writes they then see. They wait before they touch
device memory, all threads of them, so a kernel that has ended implies that all before it have.
They let the next kernel start at once: it waits in its turn, if it was launched so, else the
driver does.

An assembler moves loads of what a kernel never writes over any statement (ptxas does, over this
one), so kernels with plain loads are launched as ever; asynchronous copies stay in place.
"""

from __future__ import annotations

from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Issue, PrimFunc, Sync, View, walk


def overlaps(func: PrimFunc) -> bool:
    """Whether asynchronous copies alone read device memory."""
    return all(
        effects(s).completion in ("mbarrier", "async")
        for s, _ in walk(func.body)
        if isinstance(s, Issue)
        for v in s.reads
        if isinstance(v, View) and v.storage == "gmem"
    )


def after(func: PrimFunc) -> Sync | None:
    """The statement that the wait stands behind: the one that all threads wait in until barriers
    are initialised; None where there is none, and the wait comes first."""
    found = None
    for stmt, _ in walk(func.body):
        if isinstance(stmt, Sync) and stmt.kind == "fence_init":
            found = stmt
        elif found is not None and isinstance(stmt, Sync) and stmt.kind in ("barrier", "cluster"):
            return stmt
    return None
