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
from tilefoundry.tir.program import For, Issue, PrimFunc, Sync, View, When, walk


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
    """The statement that the wait stands behind: the one in which all threads wait until barriers
    are initialised. None, and the wait comes first, where there is none or it is not the first
    thing that all do: something before it touches device memory, or only some come to it."""
    inner = func.target.levels[-1]
    threads = next((t.size for t in func.topologies if t.level == inner), 1)
    found = False
    for stmt, mesh in walk(func.body):
        if isinstance(stmt, (For, When)):
            return None  # it may come again, or never
        if isinstance(stmt, Issue):
            views = (v for v in (*stmt.reads, *stmt.writes) if isinstance(v, View))
            if any(v.storage == "gmem" for v in views):
                return None
        elif isinstance(stmt, Sync) and stmt.kind == "fence_init":
            found = True
        elif found and isinstance(stmt, Sync) and stmt.kind in ("barrier", "cluster"):
            units = mesh.units(inner) if mesh.at(inner) else range(threads)
            return stmt if len(units) == threads else None
    return None
