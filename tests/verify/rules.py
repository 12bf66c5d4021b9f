"""Small kernels in TIR, built by hand: one rule of synchronisation each."""

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.targets.load import load_target
from tilefoundry.tir.program import (
    Barrier,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Scalar,
    Sync,
    With,
    walk,
    whole,
    window,
)

LEVELS = ("gpu", "cluster", "cta", "thread")


class Kernel:
    """``threads`` threads in warps of 32 on ``ctas`` blocks; buffers and barriers get their
    bytes in the order in which they are made."""

    def __init__(self, threads=128, ctas=1):
        self.sizes = (("cta", ctas), ("thread", threads))
        self.grid = Mesh(arrange("cta", (ctas,), ("c",)), self.sizes)
        self.block = Mesh(arrange("thread", (threads // 32, 32), ("warp", "lane")), self.sizes)
        self.inside = enter(self.grid, self.block, LEVELS)
        self.params, self.buffers, self.barriers, self.at = [], [], [], 0
        self.axes = {a.name: a for a in self.inside.axes}

    def gmem(self, name, shape, role="in"):
        self.params.append(Buffer(name, shape, BF16, "gmem", role=role))
        return self.params[-1]

    def smem(self, name, shape, slots=1, offsets=None):
        size = shape[0] * shape[1] * 2
        self.at = -(-self.at // 128) * 128
        offsets = tuple(self.at + n * size for n in range(slots)) if offsets is None else offsets
        self.at = max(self.at, max(offsets) + size)
        self.buffers.append(Buffer(name, shape, BF16, "smem", slots=slots, offsets=offsets))
        return self.buffers[-1]

    def rmem(self, name, shape, split=("warp", "lane")):
        """Rows over warps (``warp``) or columns (``across``), the other axis over lanes."""
        rows, cols = shape
        warps, warp, lane = self.axes["warp"].extent, self.axes["warp"], self.axes["lane"]
        if split == "across":
            modes, axes = ((32, rows // 32), (warps, cols // warps)), (lane, None, warp, None)
        else:
            modes, axes = ((warps, rows // warps), (32, cols // 32)), (warp, None, lane, None)
        layout = ShardLayout(modes, axes=axes)
        self.buffers.append(Buffer(name, shape, BF16, "rmem", layout, mesh=self.inside))
        return self.buffers[-1]

    def barrier(self, name, count, slots=1):
        self.at = -(-self.at // 8) * 8
        self.barriers.append(Barrier(name, slots, count, self.at))
        self.at += 8 * slots
        return self.barriers[-1]

    def on(self, first, last, *body):
        """Warps ``first`` to ``last`` (exclusive) execute ``body``."""
        own = narrow(self.block, (slice(first, last), slice(None)))
        return With(own, enter(self.inside, own, LEVELS), "some", body)

    def lanes(self, count, *body):
        own = narrow(self.block, (slice(0, 1), slice(0, count)))
        return With(own, enter(self.inside, own, LEVELS), "few", body)

    def setup(self):
        """One thread initialises all barriers; the block meets."""
        made = (Sync("init", barrier=b, count=b.count) for b in self.barriers)
        threads = dict(self.sizes)["thread"]
        return self.lanes(1, *made, Sync("fence_init")), Sync("barrier", id=0, threads=threads)

    def func(self, *body):
        """Registers that the body only reads are filled first."""
        written = {v.buffer for s, _ in walk(body) if isinstance(s, Issue) for v in s.writes}
        fill = (Issue("fill", (Scalar(0.0, BF16),), (whole(b),)) for b in self.buffers
                if b.storage == "rmem" and b not in written)  # fmt: skip
        body = (*fill, *body)
        inner = With(self.block, self.inside, "t", body)
        ctas, threads = (n for _, n in self.sizes)
        return PrimFunc(
            "k", tuple(self.params), tuple(self.buffers), tuple(self.barriers),
            (With(self.grid, self.grid, "cta", (inner,)),), load_target("nvidia.h200_sxm"),
            (Topology("cta", ctas), Topology("thread", threads)), shared_bytes=self.at,
        )  # fmt: skip


def copy(src, dst, instr="copy", **attrs):
    src = whole(src) if isinstance(src, Buffer) else src
    dst = whole(dst) if isinstance(dst, Buffer) else dst
    return Issue(instr, (src,), (dst,), attrs)


def sync(kind, **fields):
    return Sync(kind, **fields)


def loop(name, trips, make, start=0, step=1):
    """``for name in range(start, trips, step)``: ``make`` gives the body for the variable."""
    top = trips - 1 if isinstance(trips, int) else 1 << 20
    var = LoopVar(name, 0, max(top, 0), step if start == 0 else 1)
    return For(var, start, trips, step, tuple(make(var.expr())))


def pipe(slots=2, trips=4, *, wait=True, release=True, fence=True, warp=True, parity=None,
         guard=None, ahead=0):  # fmt: skip
    """A TMA load by one thread of warp 0 into a ring that warps 1 to 3 read plainly.

    ``parity(i)`` replaces the consumers' parity; ``guard(i, stmts)`` wraps what both sides do
    in step i; ``ahead`` lets the producer arrive that much earlier than it may.
    """
    k = Kernel(128)
    src = k.gmem("src", (32, 32 * max(trips, 1)))
    ring = k.smem("ring", (32, 32), slots)
    full, empty = k.barrier("full", 1, slots), k.barrier("empty", 3, slots)
    held = Buffer("held", (32, 32), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    guard = guard or (lambda i, stmts: stmts)
    parity = parity or (lambda i: i // slots % 2)

    def produce(i):
        attrs = {"barrier": full, "slot": i % slots}
        load = Issue("copy_async_tensor", (window(whole(src), (0, 32 * i), (32, 32)),),
                     (whole(ring, i % slots),), attrs)  # fmt: skip
        acquire = sync("wait", barrier=empty, slot=i % slots, parity=(i // slots + 1 + ahead) % 2)
        expect = sync("expect", barrier=full, slot=i % slots, bytes=2048)
        return guard(i, (acquire, expect, load) if release else (expect, load))

    def consume(i):
        body = [sync("wait", barrier=full, slot=i % slots, parity=parity(i))] if wait else []
        body.append(copy(whole(ring, i % slots), held))
        body += [sync("fence_proxy")] if fence else []
        body += [sync("warp")] if warp else []
        if release:
            body.append(sync("arrive", barrier=empty, slot=i % slots, every=32))
        return guard(i, tuple(body))

    return k.func(
        *k.setup(),
        k.lanes(1, loop("i", trips, produce)),
        k.on(1, 4, loop("j", trips, consume)),
    )
