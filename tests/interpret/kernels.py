"""Small kernels for the interpreter's tests: one outer level, one inner level."""

from tilefoundry.ir.dtype import F32
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.targets.load import load_target
from tilefoundry.tir.program import Buffer, Issue, PrimFunc, Sync, With, whole

LEVELS = ("gpu", "cluster", "cta", "thread")


class Block:
    """A grid of ``ctas`` blocks of ``threads``; collects buffers, gives scopes."""

    outer, inner = "cta", "thread"

    def __init__(self, threads, ctas=1, clusters=None, target="nvidia.h200_sxm"):
        self.target = load_target(target)
        self.levels = self.target.levels
        topologies = [Topology(self.outer, ctas), Topology(self.inner, threads)]
        axes = arrange(self.outer, (ctas,), ("block",))
        if clusters is not None:
            topologies.insert(0, Topology("cluster", clusters))
            axes = (*arrange("cluster", (clusters,), ("cluster",)), *axes)
        self.topologies = tuple(topologies)
        sizes = tuple((t.level, t.size) for t in topologies)
        self.grid = Mesh(axes, sizes)
        self.block = Mesh(arrange(self.inner, (threads,), ("t",)), sizes)
        self.mesh = enter(self.grid, self.block, self.levels)
        self.buffers, self.params, self.barriers = [], [], []
        self.top = 0

    def scope(self, start, stop, *body):
        """Threads start..stop-1 execute ``body``."""
        own = narrow(self.block, (slice(start, stop),))
        return With(
            own, enter(self.mesh, own, self.levels), "part", body, f"threads[{start}:{stop}]"
        )

    def arranged(self, shape, names, *body, strides=None):
        """All threads in a mesh of ``shape`` execute ``body(mesh)``."""
        own = Mesh(arrange(self.inner, shape, names, strides), self.block.sizes)
        mesh = enter(self.mesh, own, self.levels)
        return With(own, mesh, "arranged", tuple(s for f in body for s in f(mesh)))

    def param(self, name, shape, dtype=F32, role="in"):
        found = Buffer(name, shape, dtype, "gmem", role=role)
        self.params.append(found)
        return found

    def shared(self, name, shape, dtype=F32, slots=1, at=None, layout=None):
        size = dtype.bits // 8
        for extent in shape:
            size *= extent
        base = self.top if at is None else at
        found = Buffer(name, shape, dtype, "smem", layout, slots=slots,
                       offsets=tuple(base + n * size for n in range(slots)))  # fmt: skip
        self.top = max(self.top, base + slots * size)
        self.buffers.append(found)
        return found

    def held(self, name, shape, modes=None, axes=None, mesh=None, dtype=F32, partial=()):
        """Registers: ``modes`` and the mesh axis (or None) of each."""
        layout = None if modes is None else ShardLayout(modes, axes=axes, partial=partial)
        mesh = self.mesh if mesh is None else mesh
        found = Buffer(name, shape, dtype, "rmem", layout, mesh=mesh)
        self.buffers.append(found)
        return found

    def per_thread(self, name, count, dtype=F32):
        """``count`` elements, consecutive ones by consecutive threads, in turn."""
        threads = self.block.axes[0]
        if count == threads.extent:
            return self.held(name, (count,), (count,), (threads,), dtype=dtype)
        modes = ((count // threads.extent, threads.extent),)
        return self.held(name, (count,), modes, (None, threads), dtype=dtype)

    def func(self, *body):
        inner = With(self.block, self.mesh, "threads", body)
        end = self.top
        for barrier in self.barriers:
            end = max(end, barrier.offset + 8 * barrier.slots)
        return PrimFunc(
            "kernel", tuple(self.params), tuple(self.buffers), tuple(self.barriers),
            (With(self.grid, self.grid, "grid", (inner,)),), self.target,
            self.topologies, shared_bytes=end,
        )  # fmt: skip


class Cores(Block):
    """``cores`` cores of ``lanes`` lanes each, which go in step."""

    outer, inner = "core", "lane"

    def __init__(self, lanes, cores=1, target="intel.xeon_amx"):
        super().__init__(lanes, cores, target=target)

    def file(self, name, shape, dtype=F32, at=0, layout=None):
        """A buffer in the core's tile registers, from byte ``at`` on."""
        found = Buffer(name, shape, dtype, "tmem", layout, offsets=(at,), align=1024)
        self.buffers.append(found)
        return found


def copy(source, target, instr="copy", **attrs):
    """``target = source``; buffers stand for all of themselves."""
    views = [whole(x) if isinstance(x, Buffer) else x for x in (source, target)]
    return Issue(instr, (views[0],), (views[1],), attrs)


def sync(kind, **fields):
    return Sync(kind, **fields)


def kinds(outcome):
    return {r.kind for r in outcome.reports}
