"""Random small kernels: nested scopes, loops, tests, counters, odd views, every synchronisation."""

from __future__ import annotations

import random
from dataclasses import replace

from tilefoundry.diag import Span
from tilefoundry.ir import expr as ix
from tilefoundry.ir.dtype import BF16, DTYPES, F32, I32
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow, rearrange
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lang.forms import BinaryKind, Instr, InstrPath
from tilefoundry.layout import Swizzle
from tilefoundry.targets.load import load_target
from tilefoundry.tir import program as tir
from tilefoundry.tir.forms import SYNCS as SYNC_FORMS

LEVELS = ("gpu", "cluster", "cta", "thread")
SIZES = (("cta", 6), ("thread", 256))
SYNCS = tuple(SYNC_FORMS)
NAMES = ("k", "task", "i", "j", "T", "for", "x", "acc", "range")


class Maker:
    """One random kernel from a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.symbols: list[ix.Dim] = []
        self.buffers: list[tir.Buffer] = []
        self.barriers = tuple(
            tir.Barrier(f"bar{n}", self.r.choice((1, 1, 3)), self.r.randint(1, 9), 8 * n)
            for n in range(self.r.randint(1, 3))
        )
        self.counters = tuple(tir.Counter(n) for n in ("n", "turn", "k")[: self.r.randint(0, 3)])
        self.issues = 0

    def kernel(self) -> tir.PrimFunc:
        r = self.r
        params = (self.buffer("a", "gmem", "in"), self.buffer("k", "gmem", "out"))
        for name in r.sample(("lhs_ring", "staged", "k", "acc", "acc", "work"), r.randint(1, 6)):
            self.buffers.append(self.buffer(name, r.choice(("smem", "gmem")), "local"))
        self.buffers += params
        self.symbols = [c.expr() for c in self.counters]
        grid = Mesh(arrange("cta", (2, 3), ("row", "col")), SIZES)
        body = (self.scope(Mesh(), grid, "cta", "", self.body(grid, grid, "cta", 3)),)
        notes = tuple(f"memory peak={r.randint(1, 9)}KB" for _ in range(r.randint(0, 2)))
        return tir.PrimFunc(
            r.choice(("f", "gemm")),
            params,
            tuple(b for b in self.buffers if b not in params),
            self.barriers,
            (*self.stmts(Mesh(), 1), *body),
            load_target("nvidia.h200_sxm"),
            (Topology("cta", 6), Topology("thread", 256)),
            r.choice((0, 4096)),
            self.counters,
            notes,
            (("threads[0, :32] as loader", 40, 24),)[: r.randint(0, 1)],
            r.choice((None, Span("gemm.py", 7))),
        )

    def buffer(self, name: str, storage: str, role: str) -> tir.Buffer:
        r = self.r
        shape = tuple(r.choice((1, 4, 8, 12)) for _ in range(r.randint(0, 3)))
        slots = r.choice((1, 1, 3)) if role == "local" else 1
        offsets = tuple(1024 * (n + 1) for n in range(slots)) if storage == "smem" else ()
        layout = None
        if shape and storage == "smem" and r.random() < 0.5:
            swizzle = r.choice((None, Swizzle(2, 4, 3)))
            strides, step = [], 1
            for extent in shape[:: r.choice((1, -1))]:
                strides.append(step)
                step *= extent
            if strides[0] == 1 and len(shape) > 1 and strides[-1] * shape[0] != step:
                strides.reverse()
            ok = len({(s, e) for s, e in zip(strides, shape, strict=True)}) == len(shape)
            stride = tuple(strides) if ok and r.random() < 0.7 else None
            layout = ShardLayout(shape, _injective(shape, stride), (None,) * len(shape), (),
                                 swizzle, r.choice((0, 0, 16)))  # fmt: skip
        role = "work" if (role, storage) == ("local", "gmem") else role
        return tir.Buffer(name, shape, r.choice((BF16, F32)), storage, layout, role, slots,
                          offsets, r.choice((16, 16, 128)))  # fmt: skip

    # Statements

    def scope(self, outer, own, binding, source, body) -> tir.With:
        span = self.r.choice((None, Span("gemm.py", 12)))
        return tir.With(own, enter(outer, own, LEVELS), binding, body, source, span)

    def body(self, mesh, own, binding, depth) -> tuple[tir.Stmt, ...]:
        r = self.r
        out = list(self.stmts(mesh, depth))
        if not mesh.at("thread"):
            block = Mesh(arrange("thread", (2, 128), ("group", "lane")), SIZES)
            inside = enter(mesh, block, LEVELS)
            with_coords = [block.coordinate("lane"), mesh.coordinate("col")]
            out.append(self.inside(mesh, block, r.choice(("threads", "", "k")), "", inside,
                                   with_coords, 2))  # fmt: skip
        return tuple(out)

    def inside(self, outer, own, binding, source, mesh, coords, depth) -> tir.With:
        before = list(self.symbols)
        self.symbols += coords
        body = list(self.stmts(mesh, depth))
        if depth and len(own.at("thread")) == 2:
            body += self.narrowed(mesh, own, binding, depth - 1)
        self.symbols = before
        return self.scope(outer, own, binding, source, tuple(body))

    def narrowed(self, mesh, own, binding, depth) -> list[tir.Stmt]:
        """A slice of a scope, re-arranged or not, with registers of its own."""
        r = self.r
        part = narrow(own, (1, slice(32, 96))) if r.random() < 0.5 else narrow(own, (0,))
        text = f"{binding}[1, 32:96]" if part.offset("thread") else f"{binding}[0]"
        if r.random() < 0.6:
            part = rearrange(part, (part.count() // 32, 8, 4), ("w", "l8", "l4"))
        name = r.choice(("compute", "loader", "", "threads"))
        source = text if binding and r.random() < 0.7 else ""
        inner = enter(mesh, part, LEVELS)
        axes = part.axes
        layout = ShardLayout((*(a.extent for a in axes), 2), None, (*axes, None))
        shape = (part.count() * 2,)
        held = tir.Buffer("acc", shape, F32, "rmem", layout, mesh=inner,
                          registers=r.choice((None, (len(axes),))))  # fmt: skip
        self.buffers.append(held)
        coord = part.coordinate(axes[0].name)
        return [self.inside(mesh, part, name, source, inner, [coord], depth)]

    def stmts(self, mesh, depth) -> tuple[tir.Stmt, ...]:
        return tuple(self.stmt(mesh, depth) for _ in range(self.r.randint(0, 3)))

    def stmt(self, mesh, depth) -> tir.Stmt:
        r = self.r
        pick = r.random()
        if depth and pick < 0.2:
            return self.loop(mesh, depth)
        if depth and pick < 0.3:
            return tir.When(self.dim(), self.stmts(mesh, depth - 1))
        if self.counters and pick < 0.4:
            return tir.Advance(r.choice(self.counters), r.choice((1, 2, self.dim())))
        return self.sync() if pick < 0.7 else self.issue(mesh)

    def loop(self, mesh, depth) -> tir.For:
        r = self.r
        start, step = r.choice((0, 0, 3, self.dim())), r.choice((1, 2, 64))
        stop = start + r.choice((1, 7, 640))
        var = LoopVar(r.choice(NAMES), -(10**9), r.choice((10**9, float("inf"))), 1)
        self.symbols.append(var.expr())
        body = self.stmts(mesh, depth - 1)
        self.symbols.pop()
        span = r.choice((None, Span("gemm.py", 31)))
        return tir.For(var, start, stop, step, body, r.random() < 0.2, span)

    def sync(self) -> tir.Sync:
        r = self.r
        kind = r.choice(SYNCS)
        bar = r.choice(self.barriers)
        slot = self.dim() if bar.slots > 1 and kind != "init" else 0
        fields = {
            "init": {"barrier": bar, "count": bar.count},
            "wait": {"barrier": bar, "slot": slot, "parity": self.dim()},
            "arrive": {"barrier": bar, "slot": slot, "every": r.choice((0, 32, 128))},
            "expect": {"barrier": bar, "slot": slot, "bytes": 49152},
            "async_arrive": {"barrier": bar, "slot": slot},
            "barrier": {"id": r.randint(0, 15), "threads": 256},
            "barrier_arrive": {"id": r.randint(0, 15), "threads": 64},
            "wgmma_wait": {"pending": r.randint(0, 2)},
            "bulk_wait": {"pending": r.randint(0, 2), "read": r.random() < 0.5},
            "async_wait": {"pending": r.randint(0, 2)},
            "registers": {"count": 8 * r.randint(3, 30)},
        }.get(kind, {})
        why = r.choice(("", "", "lhs_ring filled", "x: 3 (twice)"))
        return tir.Sync(kind, **fields, why=why, span=r.choice((None, Span("gemm.py", 40))))

    def issue(self, mesh) -> tir.Issue:
        r = self.r
        target = self.view(r.choice(self.visible(mesh)))
        reads = tuple(self.read(mesh, target) for _ in range(r.randint(0, 2)))
        writes = (target,) if r.random() < 0.9 else (target, self.view(r.choice(self.buffers[:1])))
        atom = Instr("cuda.sm90.Wgmma", (), (("n", 256), ("form", InstrPath("cuda.sm90.Form.SS"))))
        attrs = {
            "kind": BinaryKind.ADD,
            "dtype": r.choice(tuple(DTYPES.values())),
            "atom": atom,
            "repeat": (2, 1, 4),
            "zero": True,
            "scope": None,
            "min_val": r.choice((-0.5, float("-inf"), 3)),
            "start": self.dim(),
            "op": 'a"b',
            "scratch": r.choice(self.buffers),
        }
        attrs = {k: attrs[k] for k in r.sample(sorted(attrs), r.randint(0, 3))}
        if r.random() < 0.3:
            bar = r.choice(self.barriers)
            attrs |= {"barrier": bar, "slot": self.dim() if bar.slots > 1 else 0}
        if mesh.at("thread") and r.random() < 0.2:
            attrs["over"] = (mesh.axes[-1],)
        span = r.choice((None, Span("/somewhere/else/gemm.py", 50)))
        return tir.Issue(r.choice(("copy", "cast", "tiled_mma")), reads, writes, attrs,
                         span and replace(span, file="gemm.py"), r.choice(("", "acc")))  # fmt: skip

    def read(self, mesh, target) -> tir.Operand:
        r = self.r
        if r.random() < 0.3:
            value = r.choice((0.0, -1.5, 3, True, float("inf"), self.dim()))
            return tir.Scalar(value, r.choice((target.dtype, F32, I32)))
        return self.view(r.choice(self.visible(mesh)))

    def visible(self, mesh) -> list[tir.Buffer]:
        return [b for b in self.buffers if b.mesh.axes in ((), mesh.axes)]

    # Indices

    def dim(self) -> ix.Dim:
        r = self.r
        total: ix.Dim = r.choice((0, 0, 1, 7, -3))
        for s in r.sample(self.symbols, min(len(self.symbols), r.randint(0, 3))):
            term = s * r.choice((1, 1, 2, 80, -1, -5))
            total = total + r.choice(
                (term, term // r.choice((2, 64)), (term + 5) % 3, ix.minimum(term, 4), term * s)
            )
        return r.choice((total, total, total // 3, total % 3, ix.maximum(total, 0)))

    def view(self, b: tir.Buffer) -> tir.View:
        r = self.r
        slot = self.dim() if b.slots > 1 else r.choice((0, 0, 0, self.dim()))
        base = tir.whole(b, slot)
        pick = r.random()
        if pick < 0.4 or not b.shape:
            return base
        if pick < 0.7:
            shape = tuple(r.choice((1, e, max(1, e // 2))) for e in b.shape)
            made = tir.window(base, tuple(r.choice((0, self.dim())) for _ in b.shape), shape)
            if r.random() < 0.5:  # axes of extent 1 may be left out
                kept = [n for n, e in enumerate(shape) if e != 1 or r.random() < 0.5]
                gone = {v: 0 for n, v in enumerate(made.vars) if n not in kept}
                made = replace(
                    made,
                    shape=tuple(shape[n] for n in kept),
                    vars=tuple(made.vars[n] for n in kept),
                    index=tuple(ix.substitute(x, gone) for x in made.index),
                )
        else:
            shape = tuple(r.choice((1, 2, 11)) for _ in range(r.randint(0, 3)))
            names = tuple(ix.IterVar(r.choice("pqr"), 0, e - 1) for e in shape)
            flat: ix.Dim = self.dim()
            for v, e in zip(names, shape, strict=True):
                flat = flat * e + v.expr()
            index = tuple(r.choice((flat, flat // 2, flat % e, 0)) for e in b.shape)
            made = tir.View(b, shape, names, index, slot)
        fill = r.choice((None, None, 0.0, 1, float("-inf")))
        return replace(made, fill=fill)


def _injective(shape, stride):
    """Row-major where the strides tried would put two elements in one place."""
    if stride is None:
        return None
    reach = 1
    for step, extent in sorted(zip(stride, shape, strict=True)):
        if extent == 1:
            continue
        if step < reach:
            return None
        reach = step * extent
    return stride
