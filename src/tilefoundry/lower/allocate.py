"""Byte offsets in shared memory and in register files whose rows or tiles instructions name:
rings first, then the rest by size, each aligned as its layout and its instructions demand;
barriers last."""

from __future__ import annotations

from dataclasses import replace

from tilefoundry.diag import Diag
from tilefoundry.quantity import bytes_text
from tilefoundry.targets.contract.align import alignment
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.registry import contract_at, contracts
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import (
    Barrier,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Stmt,
    View,
    When,
    With,
    views,
    walk,
)
from tilefoundry.tir.rewrite import rebuild

BARRIER_BYTES = 8
"""PTX ISA, mbarrier: a 64-bit object, aligned to 8 bytes."""


VECTOR = 16
"""The widest plain access of one thread, in bytes."""


def alignments(func: PrimFunc) -> dict[Buffer, int]:
    """Bytes that each buffer's slots start at multiples of: what its swizzle and the
    contracts of the instructions that use it demand."""
    out: dict[Buffer, int] = {}
    for stmt, _ in walk(func.body):
        if not isinstance(stmt, Issue):
            continue
        path = stmt.attrs["atom"].path if stmt.instr == TILED else stmt.instr
        for view in views(stmt):
            unit = alignment(contract_at(path), view.buffer.type)
            out[view.buffer] = max(out.get(view.buffer, VECTOR), unit)
    return out


def slot_bytes(buffer: Buffer) -> int:
    """Bytes that one slot spans, gaps of its layout included."""
    layout = buffer.layout
    if layout is None or layout.strides is None:
        count = 1
        for extent in buffer.shape:
            count *= extent
    else:
        count = 1 + sum(
            (int(m) - 1) * int(s)  # type: ignore[arg-type]
            for m, s in zip(layout.modes, layout.strides, strict=True)
        ) + layout.offset  # fmt: skip
    bytes = -(-count * buffer.dtype.bits // 8)
    swizzle = layout.swizzle if layout is not None else None
    period = 1 if swizzle is None else swizzle.period
    return -(-bytes // period) * period


def up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def allocate(func: PrimFunc) -> PrimFunc:
    """Every local buffer that has an address gets its offsets, one per slot. Buffers of a
    register file that are never alive together share its rows."""
    placed: dict[Buffer, Buffer] = {}
    ends: dict[str, int] = {}
    needs = alignments(func)
    pool = [b for b in func.buffers if _addressed(func, b)]
    files = [b for b in pool if row_bytes(func, b.storage)]
    placed |= _shared_rows(files, lifetimes(func, files), func)
    pool = [b for b in pool if b not in placed]
    for buffer in sorted(pool, key=lambda b: (b.slots == 1, -b.slots * slot_bytes(b))):
        unit = max(buffer.align, needs.get(buffer, VECTOR))
        size = up(slot_bytes(buffer), unit)
        at = up(ends.get(buffer.storage, 0), unit)
        offsets = tuple(at + n * size for n in range(buffer.slots))
        placed[buffer] = replace(buffer, offsets=offsets, align=unit)
        ends[buffer.storage] = at + buffer.slots * size
    return replace(rebuild(func, buffers=placed), shared_bytes=max(ends.values(), default=0))


def _shared_rows(
    files: list[Buffer], alive: dict[Buffer, tuple[int, int]], func: PrimFunc
) -> dict[Buffer, Buffer]:
    """The lowest rows that are free while the buffer is alive, the largest buffer first."""
    placed: dict[Buffer, Buffer] = {}
    taken: list[tuple[Buffer, int, int]] = []
    for buffer in sorted(files, key=lambda b: -b.slots * slot_bytes(b)):
        unit = row_bytes(func, buffer.storage)
        size = up(slot_bytes(buffer), unit)
        here = sorted(
            (lo, hi) for b, lo, hi in taken
            if b.storage == buffer.storage and meet(alive[b], alive[buffer])
        )  # fmt: skip
        at = 0
        for lo, hi in here:
            if at + size * buffer.slots <= lo:
                break
            at = max(at, hi)
        offsets = tuple(at + n * size for n in range(buffer.slots))
        taken.append((buffer, at, at + size * buffer.slots))
        placed[buffer] = replace(buffer, offsets=offsets, align=unit)
    return placed


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def lifetimes(func: PrimFunc, buffers: list[Buffer]) -> dict[Buffer, tuple[int, int]]:
    """First and last statement, in program order, that each buffer is alive in. What comes
    into a loop, or is read there before it is written, is alive in all of it."""
    out: dict[Buffer, tuple[int, int]] = {b: (0, -1) for b in buffers}
    wanted = set(buffers)
    at = 0

    def visit(body: tuple[Stmt, ...]) -> None:
        nonlocal at
        for stmt in body:
            at += 1
            start = at
            if isinstance(stmt, (With, For, When)):
                before = {b for b in wanted if out[b][1] >= 0}
                visit(stmt.body)
                if isinstance(stmt, For):
                    for b in wanted:
                        if out[b][1] > start and (b in before or b in read_first):
                            out[b] = (min(out[b][0], start), at)
                continue
            reads = {r.buffer for r in getattr(stmt, "reads", ()) if isinstance(r, View)}
            for view in views(stmt):
                b = view.buffer
                if b in wanted:
                    if out[b][1] < 0:
                        out[b] = (start, start)
                        if b in reads:
                            read_first.add(b)
                    out[b] = (out[b][0], start)

    read_first: set[Buffer] = set()
    visit(func.body)
    return out


def row_bytes(func: PrimFunc, storage: str) -> int:
    """Bytes of what an instruction names of a register file: a row, a tile; 0 for memory."""
    copies = [c for c in contracts(func.target) if isinstance(c, CopyInstr)]
    sizes = [c.align for c in copies if c.rows and any(storage in move for move in c.moves)]
    return max(sizes, default=0) if storage != func.target.default_storage else 0


def place_barriers(func: PrimFunc) -> PrimFunc:
    """Barriers behind the buffers, 8 bytes each."""
    at = up(func.shared_bytes, BARRIER_BYTES)
    placed: dict[Barrier, Barrier] = {}
    for barrier in func.barriers:
        placed[barrier] = replace(barrier, offset=at)
        at += barrier.slots * BARRIER_BYTES
    return replace(rebuild(func, barriers=placed), shared_bytes=at if placed else func.shared_bytes)


def overfull(func: PrimFunc) -> Diag | None:
    """What the kernel's own memory takes beside each other, if that is more than there is:
    memory is not used again when a value has died in it, as an engine may still be at work."""
    for storage in func.target.storages.values():
        held = [b for b in func.buffers if b.storage == storage.name and b.offsets]
        most = storage.capacity.value
        if not held or most is None or row_bytes(func, storage.name):
            continue
        if func.shared_bytes <= most:
            continue
        held.sort(key=lambda b: -b.slots * slot_bytes(b))
        sizes = [f"{b.name}:{bytes_text(b.slots * slot_bytes(b))}" for b in held]
        barriers = func.shared_bytes - max(b.offsets[-1] + slot_bytes(b) for b in held)
        name, size = sizes[0].rsplit(":", 1)
        fields = {
            "storage": storage.name,
            "unit": storage.level or "device",
            "needs": bytes_text(func.shared_bytes),
            "capacity": bytes_text(int(most)),
            "values": ",".join([*sizes, *([f"barriers:{barriers}B"] if barriers > 0 else [])]),
            "largest": f"{name} alone takes {size}, and none takes the place of another",
        }
        return Diag("capacity-exceeded", func.span, fields)
    return None


def _addressed(func: PrimFunc, buffer: Buffer) -> bool:
    """The buffer lies in a storage that the units of one outer unit share, or in registers
    that instructions address."""
    level = func.target.storages[buffer.storage].level
    if buffer.role != "local" or level is None:
        return False
    return level != func.target.levels[-1] or row_bytes(func, buffer.storage) > 0
