"""What an issue does to memory, as its instruction's contract states it."""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Issue


@dataclass(frozen=True)
class Effects:
    """``completion``: how its accesses become complete. ``none``: when the statement is
    done, in each participant; ``mbarrier``: transaction bytes on an mbarrier; ``bulk``: a
    bulk group of the elected thread; ``async``: a cp.async group of each thread; ``wgmma``:
    a wgmma group of the warpgroup. ``proxy``: ``generic`` or ``async``. ``elected``: one
    thread issues for all participants. ``collective``: all participants meet in it, and its
    accesses are ordered among them by itself. ``exchanges``: the lanes of a warp hand each
    other parts of what they hold.
    """

    completion: str = "none"
    proxy: str = "generic"
    elected: bool = False
    collective: bool = False
    exchanges: bool = False


PLAIN = Effects()


def effects(issue: Issue) -> Effects:
    """The effects of one issue."""
    path = issue.instr
    if path == TILED:
        path = issue.attrs["atom"].path
    contract = contract_at(path)
    assert contract is not None, path
    meaning = contract.meaning
    if meaning == "mma":
        return Effects(contract.completion, contract.proxy)  # type: ignore[union-attr]
    if meaning == "copy":
        kinds = contract.completion  # type: ignore[union-attr]
        proxy = contract.proxy  # type: ignore[union-attr]
        if "mbarrier bytes" in kinds:
            store = issue.writes[0].storage == "gmem"
            return Effects("bulk" if store else "mbarrier", proxy, elected=True)
        engine = "async" if "commit group" in kinds else "none"
        return Effects(engine, proxy, exchanges=contract.exchanges)  # type: ignore[union-attr]
    # what CTAs of a cluster combine lies in their shared memories: they only read it
    return Effects(collective=issue.attrs.get("scope") not in (None, "cluster"))


__all__ = ["PLAIN", "Effects", "effects"]
