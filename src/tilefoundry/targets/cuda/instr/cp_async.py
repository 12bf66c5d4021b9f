"""cp.async: each thread copies pieces of 4, 8 or 16 bytes from global to shared memory.

PTX ISA, cp.async: both addresses are aligned to the piece; ``.cg`` (past L1) takes 16 bytes
only; a source size below the piece fills the rest with zeros.
"""

from __future__ import annotations

from tilefoundry.targets.contract.copy import Copy, CopyInstr, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place, panels
from tilefoundry.targets.contract.runs import Pieces, shared_pieces

SIZES = (16, 8, 4)


def cache(size: int) -> str:
    """The cache operator of a piece: ``cg`` where it may be had."""
    return "cg" if size == 16 else "ca"


def async_pieces(source: Place, target: Place, units: int) -> Pieces | Unmet:
    """Pieces of both memories shared among ``units`` threads in the order of the source."""
    found = shared_pieces((source, target), 0, SIZES, units)
    if found is not None:
        return found
    fix = ""
    fast = next((n for n, m in enumerate(source.modes) if m and m[-1][1] == 1), None)
    if fast is not None and len(source.shape) == 2:
        fix = panels(source.shape, source.bits, fast)
    want = "pieces of 4, 8 or 16 bytes contiguous and aligned on both sides"
    return Unmet("pieces", want, f"{_lies(source)} to {_lies(target)}", fix)


def _lies(p: Place) -> str:
    modes = ", ".join(f"{e}:{s}" for axis in p.modes for e, s in axis)
    return f"({modes}) of {p.bits // 8} bytes, base aligned to {p.align}"


def plan(copy: Copy) -> Pieces | Unmet:
    """A load shared among the threads in force."""
    bad = same_bits(copy.source, copy.target)
    source, target = copy.source.place(), copy.target.place()
    for found in (bad, source, target):
        if isinstance(found, Unmet):
            return found
    assert isinstance(source, Place) and isinstance(target, Place)
    return async_pieces(source, target, copy.units)


COPY_ASYNC = CopyInstr(
    "copy_async",
    (("gmem", "smem"),),
    23,
    plan,
    (
        "pieces of 16, 8 or 4 bytes, contiguous and aligned on both sides",
        "threads take pieces in the order of global memory",
    ),
    "cp.async",
    ("commit group",),
    "generic",
    "PTX ISA, cp.async",
    16,
)
CONTRACTS = (COPY_ASYNC,)
