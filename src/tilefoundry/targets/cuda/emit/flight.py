"""Which registers a wgmma fence or wait concerns.

The compiler must not move a use of accumulators before the wait that retires their group, nor
a write of operands behind the fence that hands them over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.registry import every_contract
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Buffer, For, Issue, PrimFunc, Stmt, Sync, View, When, With


@dataclass
class _Flight:
    """What one warpgroup's instructions in flight hold."""

    fence: Sync | None = None
    current: list[Buffer] = field(default_factory=lambda: list[Buffer]())
    groups: list[list[Buffer]] = field(default_factory=lambda: list[list[Buffer]]())


def asynchronous(stmt: Stmt) -> bool:
    """A product that the tensor cores carry on with while the warps go on."""
    if not isinstance(stmt, Issue) or stmt.instr != TILED:
        return False
    return every_contract()[stmt.attrs["atom"].path].completion == "wgmma"  # type: ignore[union-attr]


def operands(func: PrimFunc) -> dict[Sync, tuple[Buffer, ...]]:
    """For each wgmma fence the registers of the products behind it, for each wait the sums
    that it retires."""
    found: dict[Sync, dict[Buffer, None]] = {}
    states: dict[frozenset[int], _Flight] = {}
    _walk(func.body, Mesh(), states, found)
    return {stmt: tuple(buffers) for stmt, buffers in found.items()}


def _walk(
    body: tuple[Stmt, ...], mesh: Mesh, states: dict[frozenset[int], _Flight],
    found: dict[Sync, dict[Buffer, None]],
) -> None:  # fmt: skip
    for stmt in body:
        if isinstance(stmt, With):
            _walk(stmt.body, stmt.mesh, states, found)
        elif isinstance(stmt, When):
            _walk(stmt.body, mesh, states, found)
        elif isinstance(stmt, For):
            for _ in range(2):  # what one turn leaves in flight, the next one retires
                _walk(stmt.body, mesh, states, found)
        else:
            _step(stmt, states.setdefault(frozenset(mesh.units("thread")), _Flight()), found)


def _step(stmt: Stmt, state: _Flight, found: dict[Sync, dict[Buffer, None]]) -> None:
    if asynchronous(stmt):
        assert isinstance(stmt, Issue)
        acc, lhs, _ = (v for v in stmt.reads if isinstance(v, View))
        state.current.append(acc.buffer)
        if state.fence is not None:
            mine = found.setdefault(state.fence, {})
            mine.update(dict.fromkeys(v.buffer for v in (acc, lhs) if v.storage == "rmem"))
    elif isinstance(stmt, Sync) and stmt.kind == "wgmma_fence":
        state.fence = stmt
    elif isinstance(stmt, Sync) and stmt.kind == "wgmma_commit":
        state.groups.append(state.current)
        state.current, state.fence = [], None
    elif isinstance(stmt, Sync) and stmt.kind == "wgmma_wait":
        keep = len(state.groups) - stmt.pending
        mine = found.setdefault(stmt, {})
        for group in state.groups[: max(keep, 0)]:
            mine.update(dict.fromkeys(group))
        # those of an earlier turn that may still be in flight are held as well
        state.groups = state.groups[max(keep, 0) :]


__all__ = ["asynchronous", "operands"]
