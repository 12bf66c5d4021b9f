"""The calls that synchronisation statements are printed as."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Sync


@dataclass(frozen=True)
class Form:
    """``T.call(by position, by name=...)``: ``first`` is the field given by position, if
    any; ``stated`` are the fields that are always written, others where not their default."""

    call: str
    first: str = ""
    stated: tuple[str, ...] = ()


SYNCS = {
    "init": Form("mbarrier_init", "barrier", ("count",)),
    "fence_init": Form("fence_mbarrier_init"),
    "wait": Form("mbarrier_wait", "barrier", ("parity",)),
    "arrive": Form("mbarrier_arrive", "barrier", ("every",)),
    "expect": Form("mbarrier_expect", "barrier", ("bytes",)),
    "async_arrive": Form("mbarrier_async_arrive", "barrier"),
    "barrier": Form("barrier", "id", ("threads",)),
    "barrier_arrive": Form("barrier_arrive", "id", ("threads",)),
    "warp": Form("sync_warp"),
    "cluster": Form("sync_cluster"),
    "cluster_arrive": Form("sync_cluster_arrive"),
    "cluster_wait": Form("sync_cluster_wait"),
    "grid": Form("sync_grid"),
    "fence_proxy": Form("fence_proxy_async"),
    "wgmma_fence": Form("wgmma_fence"),
    "wgmma_commit": Form("wgmma_commit"),
    "wgmma_wait": Form("wgmma_wait", "pending"),
    "bulk_commit": Form("bulk_commit"),
    "bulk_wait": Form("bulk_wait", "pending"),
    "async_commit": Form("async_commit"),
    "async_wait": Form("async_wait", "pending"),
    "registers": Form("set_registers", "count"),
}
KINDS = {form.call: kind for kind, form in SYNCS.items()}
DEFAULTS: dict[str, Any] = {f.name: f.default for f in fields(Sync) if f.default is not MISSING}
"""Fields of a :class:`Sync` and their defaults; ``kind`` has none."""
AXES = ("over", "multicast")
"""Parameters that are axes of a mesh."""
COMMENTED = ("why", "span")
"""Fields that stand in the comment behind the call."""

DECLARATIONS = ("tensor_view", "alloc_tensor", "mbarrier", "counter", "view", "unroll")
"""Calls that are no instruction."""


def implied(instr: str) -> str:
    """The operation that an instruction stands for where its parameters name none."""
    if instr == TILED:
        return "mma"
    contract = contract_at(instr)
    return instr if contract is None else contract.meaning


__all__ = ["AXES", "COMMENTED", "DECLARATIONS", "DEFAULTS", "KINDS", "SYNCS", "Form", "implied"]
