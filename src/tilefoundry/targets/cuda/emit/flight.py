"""Which registers a wgmma fence or wait concerns.

The compiler must not move a use of accumulators before the wait that retires their group, nor
a write of operands behind the fence that hands them over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import (
    Buffer,
    For,
    Issue,
    PrimFunc,
    Scalar,
    Stmt,
    Sync,
    View,
    When,
    With,
    views,
)


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
    return contract_at(stmt.attrs["atom"].path).completion == "wgmma"  # type: ignore[union-attr]


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


@dataclass
class Zeros:
    """Fills by 0 that nothing reads but the first product of a chain, and those products:
    each with the loop in whose first turn it does not add (None: it never does)."""

    fills: set[Issue] = field(default_factory=lambda: set[Issue]())
    products: dict[Issue, For | None] = field(default_factory=lambda: dict[Issue, For | None]())


def zeros(func: PrimFunc) -> Zeros:
    """The fills of a kernel that its products make unnecessary."""
    out = Zeros()
    _zeros(func.body, out)
    return out


def _zeros(body: tuple[Stmt, ...], out: Zeros) -> None:
    line = list(_line(body))
    for n, stmt in enumerate(line):
        if isinstance(stmt, (For, When)):
            _zeros(stmt.body, out)
        elif _is_zero(stmt):
            assert isinstance(stmt, Issue)
            buffer = stmt.writes[0].buffer
            found = next((s for s in line[n + 1 :] if _uses(s, buffer)), None)
            loop: For | None = None
            if isinstance(found, For) and _runs(found):
                loop = found
                found = next((s for s in _line(found.body) if _uses(s, buffer)), None)
            if isinstance(found, Issue) and asynchronous(found) and _first(found, buffer):
                out.fills.add(stmt)
                out.products[found] = loop


def _line(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for stmt in body:
        if isinstance(stmt, With):
            yield from _line(stmt.body)
        else:
            yield stmt


def _is_zero(stmt: Stmt) -> bool:
    if not isinstance(stmt, Issue) or stmt.instr != "fill" or not stmt.reads:
        return False
    value, write = stmt.reads[0], stmt.writes[0]
    return isinstance(value, Scalar) and value.value == 0 and (
        write.is_whole and write.storage == "rmem"
    )  # fmt: skip


def _runs(loop: For) -> bool:
    return isinstance(loop.start, int) and isinstance(loop.stop, int) and loop.start < loop.stop


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    if isinstance(stmt, (With, For, When)):
        return any(_uses(s, buffer) for s in stmt.body)
    return any(v.buffer is buffer for v in views(stmt))


def _first(issue: Issue, buffer: Buffer) -> bool:
    """The product's sum is the whole buffer, and no operand is."""
    acc, *others = (v for v in issue.reads if isinstance(v, View))
    return acc.buffer is buffer and acc.is_whole and all(v.buffer is not buffer for v in others)


__all__ = ["Zeros", "asynchronous", "operands", "zeros"]
