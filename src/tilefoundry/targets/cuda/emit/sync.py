"""Synchronisation statements as calls of the runtime header."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.cuda.emit.text import enclosed
from tilefoundry.tir.program import Barrier, Sync

if TYPE_CHECKING:
    from tilefoundry.targets.cuda.emit.kernel import Kernel

WARP = 32


@contextmanager
def one_thread(k: Kernel, mesh: Mesh) -> Iterator[None]:
    """What is written inside is done by the first participant alone."""
    first = mesh.units("thread")[0] if mesh.at("thread") else 0
    if len(k.active) == 1:
        yield
        return
    warp = first // WARP
    whole = all(n in k.active for n in range(warp * WARP, (warp + 1) * WARP))
    test = "tf_elect()" if whole else f"tid == {first}"
    if whole and len(k.active) > WARP:
        test = f"warp == {warp} && {test}"
    with k.out.block(f"if ({test})"):
        yield


def mbarrier(k: Kernel, barrier: Barrier | None, slot: Dim) -> str:
    """The shared-memory address of one mbarrier."""
    assert barrier is not None
    name = k.names[barrier]
    if barrier.slots == 1 or slot == 0:
        return name
    text = k.dim(slot)
    plain = text.isdigit() or text.isidentifier() or enclosed(text) or text.startswith("tf_")
    return f"{name} + {text if plain else f'({text})'} * 8"


def write(k: Kernel, stmt: Sync, mesh: Mesh) -> None:
    """One statement, for the threads that reach it."""
    at = mbarrier(k, stmt.barrier, stmt.slot) if stmt.barrier is not None else ""
    why = f"  // {stmt.why}" if stmt.why else ""
    out = k.out
    match stmt.kind:
        case "init":
            assert stmt.barrier is not None
            for n in range(stmt.barrier.slots):
                where = mbarrier(k, stmt.barrier, n)
                out.line(f"tf_mbarrier_init({where}, {stmt.count or stmt.barrier.count});")
        case "fence_init":
            out.line("tf_mbarrier_init_fence();")
        case "wait":
            word = "tf_mbarrier_wait"
            if stmt.barrier in k.remote:
                word += "_read" if stmt.read else "_cluster"
            out.line(f"{word}({at}, {k.dim(stmt.parity)});{why}")
        case "arrive":
            test = _every(k, stmt.every, mesh)
            if not stmt.over:
                out.line(f"{test}tf_mbarrier_arrive({at});{why}")
                return
            first, steps = k.ranks(stmt.over)
            with out.block(test.strip()):
                if not stmt.read:
                    out.line("tf_cluster_release();")
                for step in steps:
                    rank = f"{first} + {step}" if first and step else first or str(step)
                    out.line(f"tf_mbarrier_arrive_at({at}, {rank});{why}")
        case "cluster":
            out.line(f"tf_cluster_barrier();{why}")
        case "cluster_arrive" | "cluster_wait":
            out.line(f"tf_{stmt.kind}();{why}")
        case "expect":
            out.line(f"tf_mbarrier_expect({at}, {stmt.bytes});{why}")
        case "async_arrive":
            out.line(f"tf_async_arrive({at});{why}")
        case "barrier":
            out.line(f"tf_barrier<{stmt.id}, {stmt.threads}>();{why}")
        case "barrier_arrive":
            out.line(f"tf_barrier_arrive<{stmt.id}, {stmt.threads}>();{why}")
        case "warp":
            out.line(f"__syncwarp();{why}")
        case "fence_proxy":
            out.line(f"tf_proxy_fence();{why}")
        case "wgmma_fence":
            _hold(k, stmt)
            out.line("tf_wgmma_fence();")
        case "wgmma_commit":
            out.line("tf_wgmma_commit();")
        case "wgmma_wait":
            out.line(f"tf_wgmma_wait<{stmt.pending}>();{why}")
            _hold(k, stmt)
        case "bulk_commit":
            out.line("tf_bulk_commit();")
        case "bulk_wait":
            word = "tf_bulk_wait_read" if stmt.read else "tf_bulk_wait"
            out.line(f"{word}<{stmt.pending}>();{why}")
        case "async_commit":
            out.line("tf_async_commit();")
        case "async_wait":
            out.line(f"tf_async_wait<{stmt.pending}>();{why}")
        case "registers":
            file = k.func.target.registers
            assert file is not None
            start = file.even(k.threads)
            word = "more" if stmt.count > start else "fewer"
            out.line(f"tf_{word}_registers<{stmt.count}>();{why}")
        case _:
            k.form(stmt, f"T.{stmt.kind}", "there is no such statement", "report it")


def _hold(k: Kernel, stmt: Sync) -> None:
    """The compiler may not move uses of these registers across this point."""
    for buffer in k.flight.get(stmt, ()):
        if buffer in k.names and buffer in k.alive:
            k.out.line(f"tf_hold({k.names[buffer]});")


def _every(k: Kernel, every: int, mesh: Mesh) -> str:
    """The test for the first of each ``every`` participants."""
    units = mesh.units("thread") if mesh.at("thread") else list(range(k.threads))
    if every <= 1 or len(units) == 1:
        return ""
    first = units[0]
    if units != list(range(first, first + len(units))):
        chosen = units[::every]
        return f"if ({' || '.join(f'tid == {u}' for u in chosen)}) "
    if len(units) == every:
        return f"if (tid == {first}) "
    place = f"(tid - {first})" if first % every else "tid"
    return f"if ({place} % {every} == 0) "
