"""The plan of shared memory and of register files that instructions address: places,
alignment, capacity, and which buffers share bytes."""

from __future__ import annotations

from math import prod

from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import MEETINGS, Barrier, Buffer, Issue, Stmt, Sync, View, views
from tilefoundry.tir.versions import stale_reads
from tilefoundry.verify.finding import Findings, Place
from tilefoundry.verify.memory import Unit
from tilefoundry.verify.roles import UNIT, WARP, WARPGROUP, Layout, inner_levels

SHARED = "smem"
BARRIER_BYTES = 8
"""PTX ISA, mbarrier: an opaque 64-bit object, 8-byte aligned."""
NAMED = 16
"""PTX ISA, barrier: named barriers of a CTA."""


def check(layout: Layout, findings: Findings) -> dict[Unit, list[Unit]]:
    """Judge the plan; returns which slots share bytes with which slots of other buffers."""
    func = layout.func
    needs = _alignments(layout)
    ranges: dict[str, list[tuple[int, int, Unit]]] = {SHARED: []}
    for buffer in func.buffers:
        if buffer.storage != SHARED and not buffer.offsets:
            continue
        size = slot_bytes(buffer)
        if len(buffer.offsets) != buffer.slots:
            _say(findings, buffer.name, f"{len(buffer.offsets)} offsets for {buffer.slots} slots",
                 "one offset per slot")  # fmt: skip
        for slot, offset in enumerate(buffer.offsets):
            unit = needs[buffer]
            if offset % unit:
                _say(findings, buffer.name,
                     f"slot {slot} lies at byte {offset}, not a multiple of {unit}",
                     f"place it at a multiple of {unit}")  # fmt: skip
            here = ranges.setdefault(buffer.storage, [])
            here.append((offset, offset + size, (buffer, slot)))
    bars = [(b.offset, b.offset + BARRIER_BYTES * b.slots, b) for b in func.barriers]
    _inside(layout, findings, ranges[SHARED], bars)
    shared = _overlaps(findings, ranges.pop(SHARED), bars)
    for storage, pieces in ranges.items():
        _in_file(layout, findings, storage, pieces)
        shared |= _overlaps(findings, pieces, [])
    return shared


def _in_file(layout: Layout, findings: Findings, storage: str,
             pieces: list[tuple[int, int, Unit]]) -> None:  # fmt: skip
    """Buffers lie in the tiles or rows that there are."""
    limit = layout.func.target.storages[storage].capacity.value
    for start, stop, (buffer, _) in pieces:
        if start < 0 or (limit is not None and stop > limit):
            _say(findings, buffer.name, f"bytes {start} to {stop} are outside the {limit} of "
                 f"{storage}", "smaller tiles, or fewer alive at once")  # fmt: skip


def slot_bytes(buffer: Buffer) -> int:
    """Bytes from the first to the last that one slot touches."""
    form = buffer.layout
    if form is None or form.strides is None:
        count = prod(buffer.shape)
    else:
        reach = zip(form.modes, form.strides, strict=True)
        count = 1 + form.offset + sum((int(m) - 1) * int(s) for m, s in reach)  # type: ignore[arg-type]
    size = -(-count * buffer.dtype.bits // 8)
    span = 1 if form is None or form.swizzle is None else form.swizzle.span
    return -(-size // span) * span


def _alignments(layout: Layout) -> dict[Buffer, int]:
    """Bytes that each buffer's slots must be a multiple of."""
    out: dict[Buffer, int] = {}
    for buffer in layout.func.buffers:
        form = buffer.layout
        swizzled = form.swizzle.span * 8 if form is not None and form.swizzle is not None else 1
        out[buffer] = max(buffer.align, swizzled, -(-buffer.dtype.bits // 8))
    for stmt in layout.sites:
        if isinstance(stmt, Issue) and effects(stmt).elected:
            contract = contract_at(stmt.instr)
            least = contract.align if isinstance(contract, CopyInstr) else 1
            for view in views(stmt):
                if view.storage == "smem":
                    out[view.buffer] = max(out.get(view.buffer, 1), least)
    return out


def _say(findings: Findings, name: str, missing: str, fix: str) -> None:
    findings.add("smem-plan", Place(name, ""), None, missing, fix)


def _inside(layout: Layout, findings: Findings, ranges: list[tuple[int, int, Unit]],
            bars: list[tuple[int, int, Barrier]]) -> None:  # fmt: skip
    func = layout.func
    pieces = [(a, b, u[0].name) for a, b, u in ranges] + [(a, b, x.name) for a, b, x in bars]
    for start, stop, name in pieces:
        if start < 0 or stop > func.shared_bytes:
            _say(findings, name, f"bytes {start} to {stop} are outside the {func.shared_bytes} "
                 "declared", "declare the shared memory that the plan uses")  # fmt: skip
    for offset, _, barrier in bars:
        if offset % BARRIER_BYTES:
            _say(findings, barrier.name, f"an mbarrier at byte {offset}, not a multiple of 8",
                 "place it at a multiple of 8")  # fmt: skip
    place = func.target.storages.get("smem") if func.target is not None else None
    capacity = place.capacity.value if place is not None else None
    if isinstance(capacity, (int, float)) and func.shared_bytes > capacity:
        findings.add("smem-capacity", Place(func.name, ""), None,
                     f"{func.shared_bytes} bytes of shared memory, of {capacity}",
                     "fewer slots or smaller tiles")  # fmt: skip


def _overlaps(findings: Findings, ranges: list[tuple[int, int, Unit]],
              bars: list[tuple[int, int, Barrier]]) -> dict[Unit, list[Unit]]:  # fmt: skip
    shared: dict[Unit, list[Unit]] = {}
    items: list[tuple[int, int, Unit | Barrier]] = sorted(
        [*ranges, *bars], key=lambda item: item[:2]
    )
    alive: list[tuple[int, int, Unit | Barrier]] = []
    for item in items:
        alive = [other for other in alive if other[1] > item[0]]
        for other in alive:
            a, b = other[2], item[2]
            if isinstance(a, Barrier) or isinstance(b, Barrier):
                _say(findings, _name(b), f"it overlaps {_name(a)}",
                     "barriers need bytes of their own")  # fmt: skip
            elif a[0] is b[0]:
                _say(findings, a[0].name, f"slots {a[1]} and {b[1]} overlap",
                     "slots of a ring need bytes of their own")  # fmt: skip
            else:
                shared.setdefault(a, []).append(b)
                shared.setdefault(b, []).append(a)
        alive.append(item)
    return shared


def _name(item: Unit | Barrier) -> str:
    return item.name if isinstance(item, Barrier) else item[0].name


# ---- participants and registers


def participants(layout: Layout, findings: Findings) -> None:
    """Collective statements have whole, aligned warps or warpgroups; named barriers are legal.
    Lanes that go in step have neither."""
    if inner_levels(layout.func)[-1] != UNIT:
        return
    whole: dict[tuple[tuple[int, ...], int], bool] = {}
    for stmt, site in layout.sites.items():
        group = _group(stmt)
        key = site.threads, group
        if key not in whole:
            whole[key] = group == 1 or all(
                site.members.issuperset(range(g * group, g * group + group))
                for g in {t // group for t in site.threads}
            )
        if not whole[key]:
            findings.add(
                "sync-participants", site.place, None,
                f"its participants are not whole, aligned groups of {group} threads",
                f"let all {group} threads of each group execute it",
            )  # fmt: skip
        if not isinstance(stmt, Sync):
            continue
        if stmt.kind in ("barrier", "barrier_arrive") and (
            not 0 <= stmt.id < NAMED or stmt.threads % WARP or stmt.threads <= 0
        ):
            findings.add(
                "sync-barrier", site.place, None,
                f"named barrier {stmt.id} over {stmt.threads} threads",
                "an id below 16, a multiple of 32 threads",
            )  # fmt: skip
        if stmt.kind in (*MEETINGS, "grid") and len(site.threads) != layout.threads:
            findings.add(
                "sync-participants", site.place, None, "not all threads take part",
                "execute it outside of any narrower scope",
            )  # fmt: skip
        if stmt.kind == "arrive" and stmt.every > 1 and len(site.threads) % stmt.every:
            findings.add(
                "sync-participants", site.place, None,
                f"{len(site.threads)} participants are not blocks of {stmt.every}",
                "divide the participants evenly",
            )  # fmt: skip


def held(layout: Layout, findings: Findings) -> None:
    """Registers are read by threads that have written them: nothing else crosses roles."""
    writers: dict[Buffer, set[int]] = {}
    for stmt, site in layout.sites.items():
        if isinstance(stmt, Issue):
            for view in stmt.writes:
                if view.storage == "rmem":
                    writers.setdefault(view.buffer, set()).update(site.threads)
    for stmt, site in layout.sites.items():
        for view in stmt.reads if isinstance(stmt, Issue) else ():
            if not isinstance(view, View) or view.storage != "rmem":
                continue
            others = writers.get(view.buffer)
            if others is not None and not site.members <= others:
                findings.add(
                    "sync-registers", site.place, None,
                    f"{view.buffer.name} is read by threads that never write it; others do",
                    "pass the value through shared memory",
                )  # fmt: skip
    for issue, buffer in stale_reads(layout.func):
        findings.add(
            "sync-registers", layout.sites[issue].place, None,
            f"some threads hold an old version of {buffer.name}: others updated theirs",
            "pass the value through shared memory",
        )  # fmt: skip


def _group(stmt: Stmt) -> int:
    if isinstance(stmt, Sync):
        if stmt.kind in ("wgmma_fence", "wgmma_commit", "wgmma_wait", "registers"):
            return WARPGROUP
        return WARP if stmt.kind in ("warp", "barrier", "barrier_arrive") else 1
    if not isinstance(stmt, Issue):
        return 1
    if effects(stmt).completion == "wgmma":
        return WARPGROUP
    whole = stmt.instr == TILED or effects(stmt).exchanges
    return WARP if whole or stmt.attrs.get("scope") in ("warp", "cta", "grid") else 1


def registers(layout: Layout, findings: Findings) -> None:
    """setmaxnreg: multiples of the step within the limits, of a pool that suffices."""
    target = layout.func.target
    held: dict[int, int] = {}
    for stmt, site in layout.sites.items():
        if not isinstance(stmt, Sync) or stmt.kind != "registers":
            continue
        low, high, step = (target.fact(f"limits.setmaxnreg.{x}").value for x in _LIMITS)
        if stmt.count % step or not low <= stmt.count <= high:
            findings.add(
                "register-plan", site.place, None,
                f"{stmt.count} registers per thread",
                f"a multiple of {step} from {low} to {high}",
            )  # fmt: skip
        held.update((t, stmt.count) for t in site.threads)
    file = target.registers
    if not held or file is None or layout.threads % WARPGROUP:
        return
    launch = file.even(layout.threads) // file.step * file.step
    total = sum(held.values()) + launch * (layout.threads - len(held))
    if total > launch * layout.threads:
        findings.add(
            "register-plan", Place(layout.func.name, ""), None,
            f"the roles ask {total} registers, of {launch * layout.threads} at launch",
            "lower one role's count",
        )  # fmt: skip


_LIMITS = ("min", "max", "step")


__all__ = ["check", "held", "participants", "registers", "slot_bytes"]
