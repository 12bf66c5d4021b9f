"""Copies by the TMA engine: boxes of a tensor, or contiguous bytes; one thread issues."""

from __future__ import annotations

from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Window
from tilefoundry.targets.cuda.emit import sync
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.instr.bulk import BulkRuns
from tilefoundry.targets.cuda.instr.tma import TensorMap
from tilefoundry.tir.plans import plan_of, side
from tilefoundry.tir.program import Issue, View, reach


def _ends(issue: Issue) -> tuple[View, View, bool]:
    """(shared, global, is a load)."""
    source, target = issue.reads[0], issue.writes[0]
    assert isinstance(source, View)
    load = target.storage == "smem"
    return (target, source, True) if load else (source, target, False)


def _completion(k: Kernel, issue: Issue) -> str:
    return sync.mbarrier(k, issue.attrs.get("barrier"), issue.attrs.get("slot", 0))


def emit_tensor(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One instruction for each box of the tile."""
    near, far, load = _ends(issue)
    plan = plan_of(issue, mesh)
    assert isinstance(plan, TensorMap), plan
    found = side(far)
    assert not isinstance(found, Unmet)
    window = found.window or Window.all_of(found.type)
    starts = plan.coordinates(window.starts)
    name = k.map_of(far.buffer, plan)
    base = k.address(near.buffer, near.slot)
    at_near = side(near)
    tile = at_near if isinstance(at_near, Unmet) else at_near.place()
    assert not isinstance(tile, Unmet)
    if not isinstance(tile.base, int):  # else the pieces begin there
        base = f"{base} + {k.dim(tile.base * tile.bits // 8)}"
    over = reach(issue)
    ctas = ""
    if over:
        first, steps = k.ranks(over)
        mask = sum(1 << s for s in steps)
        ctas = f"{mask:#x} << {first}, " if first else f"{mask:#x}, "
    for piece in plan.issues:
        at = ", ".join(k.dim(s + c) for s, c in zip(starts, piece.coordinates, strict=True))
        place = f"{base} + {piece.smem}" if piece.smem else base
        if load:
            word = "tf_tensor_multicast" if over else "tf_tensor_load"
            k.out.line(f"{word}({place}, {name}, {_completion(k, issue)}, {ctas}{at});")
        else:
            k.out.line(f"tf_tensor_store({name}, {place}, {at});")


def emit_bulk(k: Kernel, issue: Issue, mesh: Mesh) -> None:
    """One instruction for each contiguous run."""
    near, far, load = _ends(issue)
    plan = plan_of(issue, mesh)
    assert isinstance(plan, BulkRuns), plan
    sides = side(near), side(far)
    places = [s.place() for s in sides if not isinstance(s, Unmet)]
    shared, global_ = places
    assert not isinstance(shared, Unmet) and not isinstance(global_, Unmet)
    size = near.dtype.bits // 8
    for start in plan.starts():
        at = shared.base
        place = global_.base
        for axis, n in enumerate(start):
            at = at + shared.along(axis, n)
            place = place + global_.along(axis, n)
        to = f"{k.address(near.buffer, near.slot)} + {k.dim(at * size)}"
        from_ = f"{k.names[far.buffer]} + {k.dim(place)}"
        if load:
            k.out.line(f"tf_bulk_load({to}, {from_}, {plan.bytes}, {_completion(k, issue)});")
        else:
            k.out.line(f"tf_bulk_store({from_}, {to}, {plan.bytes});")


EMITTERS = {"copy_async_tensor": emit_tensor, "copy_async_bulk": emit_bulk}
