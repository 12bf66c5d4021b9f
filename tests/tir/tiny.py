"""Kernels of a few statements, to put one question to a pass."""

from __future__ import annotations

from samples import LEVELS

from tilefoundry.ir.dtype import F32
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lower.allocate import allocate
from tilefoundry.targets.load import load_target
from tilefoundry.tir.program import (
    Buffer,
    For,
    Issue,
    PrimFunc,
    Sync,
    View,
    When,
    With,
    views,
    walk,
    whole,
)


class Tiny:
    """One CTA of ``threads`` threads arranged as (warp, lane)."""

    def __init__(self, threads=256, ctas=1):
        self.sizes = (("cta", ctas), ("thread", threads))
        self.grid = Mesh(arrange("cta", (ctas,), ("p",)), self.sizes)
        self.block = Mesh(arrange("thread", (threads // 32, 32), ("warp", "lane")), self.sizes)
        self.inside = enter(self.grid, self.block, LEVELS)

    def on(self, first, last, *body, lanes=slice(None)):
        """``body`` by the warps first..last-1."""
        own = narrow(self.block, (slice(first, last), lanes))
        return With(own, enter(self.inside, own, LEVELS), "role", body)

    def kernel(self, *body, counters=()):
        used = dict.fromkeys(
            v.buffer for stmt, _ in walk(body) for v in views(stmt)
        )  # fmt: skip
        params = tuple(b for b in used if b.role in ("in", "out"))
        local = tuple(b for b in used if b.role not in ("in", "out"))
        block = With(self.block, self.inside, "threads", body)
        return allocate(PrimFunc(
            "tiny", params, local, (), (With(self.grid, self.grid, "cta", (block,)),),
            load_target("nvidia.h200_sxm"),
            tuple(Topology(level, size) for level, size in self.sizes), counters=counters,
        ))  # fmt: skip

    def held(self, name, first, last, shape=(32, 32)):
        """Registers of the warps first..last-1: rows by warp, columns by lane."""
        mesh = self.on(first, last).mesh
        warp, lane = mesh.at("thread")
        modes = (last - first, shape[0] // (last - first), 32, shape[1] // 32)
        return Buffer(name, shape, F32, "rmem", ShardLayout(modes, None, (warp, None, lane, None)),
                      mesh=mesh)  # fmt: skip


def shared(name, slots=1, shape=(32, 32), dtype=F32):
    return Buffer(name, shape, dtype, "smem", slots=slots)


def given(name, shape=(32, 32), dtype=F32):
    return Buffer(name, shape, dtype, "gmem", role="in")


def result(name, shape=(32, 32)):
    return Buffer(name, shape, F32, "gmem", role="out")


def move(instr, source, place, slot=0, **attrs):
    """A copy; ``slot`` is that of the side in shared memory."""
    sides = [x if isinstance(x, View) else whole(x, slot if x.storage == "smem" else 0)
             for x in (source, place)]  # fmt: skip
    return Issue(instr, (sides[0],), (sides[1],), {"op": "copy", **attrs})


def op(name, *operands):
    """An elementwise operation on registers; the last operand is its result."""
    return Issue("unary" if len(operands) == 2 else "binary", tuple(map(whole, operands[:-1])),
                 (whole(operands[-1]),), {"op": name, "kind": name})  # fmt: skip


def loop(name, trips, *body, start=0, step=1):
    """``body`` as a function of the loop's variable."""
    hi = max((trips if isinstance(trips, int) else 8) - 1, 0) * step
    var = LoopVar(name, 0, hi, step)
    made = body[0](var.expr()) if callable(body[0]) else body
    stop = start + trips * step
    return For(var, start, stop, step, made if isinstance(made, tuple) else (made,))


def syncs(func):
    """Every synchronisation statement with the threads that execute it, but the setup."""
    found = [(s, tuple(m.units("thread"))) for s, m in walk(func.body) if isinstance(s, Sync)]
    names = [s.kind for s, _ in found]
    at = names.index("fence_init") + 2 if "fence_init" in names else 0
    return found[at:]


def lines(func):
    """The kernel as text: scopes by their warps, loops, copies and synchronisation."""
    out: list[str] = []

    def visit(body, depth):
        for stmt in body:
            pad = "  " * depth
            match stmt:
                case With():
                    units = stmt.mesh.units("thread")
                    out.append(f"{pad}threads {units[0]}..{units[-1]}")
                case For():
                    out.append(f"{pad}for {stmt.var}")
                case When():
                    out.append(f"{pad}when {stmt.test}")
                case Issue():
                    names = " ".join(v.buffer.name for v in views(stmt))
                    out.append(f"{pad}{stmt.instr} {names}")
                case Sync():
                    out.append(pad + said(stmt))
                case _:
                    out.append(f"{pad}advance {stmt.counter}")
            if isinstance(stmt, (With, For, When)):
                visit(stmt.body, depth + 1)

    (outer,) = func.body
    (block,) = outer.body
    start = next((n + 2 for n, s in enumerate(block.body)
                  if isinstance(s, Sync) and s.kind == "fence_init"), 0)  # fmt: skip
    visit(block.body[start:], 0)
    return out


def said(stmt):
    """One synchronisation statement in words."""
    words = [stmt.kind]
    if stmt.barrier is not None:
        slot = "" if stmt.slot == 0 else f"[{stmt.slot}]"
        words.append(f"{stmt.barrier.name}{slot}")
    if stmt.kind == "wait":
        words.append(f"parity {stmt.parity}")
    if stmt.kind in ("wgmma_wait", "async_wait", "bulk_wait"):
        words.append(str(stmt.pending))
    words += [f"{k} {getattr(stmt, k)}" for k in ("every", "bytes", "threads") if getattr(stmt, k)]
    if stmt.kind == "barrier":
        words.append(f"id {stmt.id}")
    return " ".join(words) + (" read" if stmt.read else "")


__all__ = [
    *("F32", "Buffer", "Tiny", "given", "lines", "loop", "move"),
    *("op", "result", "said", "shared", "syncs"),
]
