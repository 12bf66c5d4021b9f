"""Forms of TIR that are no work of their own: a tile by repeats of an atom, declarations."""

from __future__ import annotations

from tilefoundry.targets.contract.derived import DerivedInstr, TiledInstr


def declares(path: str, rank: int, what: str, *rules: str) -> DerivedInstr:
    return DerivedInstr(path, "", rank, "none: a declaration", what, rules)


CONTRACTS = (
    TiledInstr("tiled_mma", 30),
    declares("shared_memory", 60, "bytes of shared memory of one CTA, barriers included"),
    declares("align", 61, "bytes that the buffers' offsets are multiples of"),
    declares("tensor_view", 62, "a tensor at a byte offset of a storage; a tuple is a ring",
             "aligned as T.align says, disjoint from what is alive with it"),
    declares("alloc_tensor", 63, "a tensor in the units' own storage, or device workspace"),
    declares("view", 64, "a part of a tensor, or one that is arranged otherwise"),
    declares("counter", 65, "a running count that each role keeps, from 0"),
    declares("mbarrier", 66, "an array of barriers at a byte offset of shared memory"),
    declares("unroll", 67, "asks that a loop be unrolled"),
    declares("topologies", 68, "declared sizes of the levels"),
)  # fmt: skip
