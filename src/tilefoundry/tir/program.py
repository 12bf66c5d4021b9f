"""TIR: an imperative program over participants and buffers with explicit storage.

Participants are the units of the innermost :class:`With`. Nothing here knows a hardware:
what an :class:`Issue` does, how it completes and in which proxy is its contract's business
(``tilefoundry.targets``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tilefoundry.diag import Span
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, Expr, IterVar, LoopVar, Sym, substitute, symbols
from tilefoundry.ir.mesh import Axis, Mesh, Topology
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import IMMEDIATE, TensorType

# Buffers and views


@dataclass(frozen=True, eq=False)
class Buffer:
    """Storage for one tensor, or for ``slots`` of them in a ring.

    ``role``: ``in`` and ``out`` are parameters, ``work`` is device memory that the runtime
    allocates, ``local`` is the kernel's own. ``offsets`` are bytes from the start of the
    storage, one per slot (none for parameters and registers). ``layout`` says how each slot
    lies (None: row-major) and, in a unit's own storage, who holds what; ``mesh`` is the mesh
    whose units hold a buffer in such storage, ``registers`` the order of a unit's local
    modes there, fastest first (mode indices of ``layout``; None: last mode fastest).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    storage: str
    layout: ShardLayout | None = None
    role: str = "local"
    slots: int = 1
    offsets: tuple[int, ...] = ()
    align: int = 16
    mesh: Mesh = field(default_factory=Mesh)
    registers: tuple[int, ...] | None = None
    span: Span | None = None

    @property
    def type(self) -> TensorType:
        """The type of one slot."""
        return TensorType(self.shape, self.dtype, self.layout, self.storage)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"


@dataclass(frozen=True, eq=False)
class View:
    """A tensor of ``shape`` inside one slot of a buffer: element ``vars`` of the view is
    element ``index`` of the buffer.

    ``index`` may be any quasi-affine expression of ``vars``, loop variables and mesh
    coordinates, so slices, transposes, reshapes and paddings are all views. Coordinates
    outside the buffer read as ``fill`` and are not written; without ``fill`` they are an
    error.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    vars: tuple[IterVar, ...]
    index: tuple[Dim, ...]
    slot: Dim = 0
    fill: float | int | None = None

    @cached_property
    def starts(self) -> tuple[Dim, ...] | None:
        """Where the view starts if it is a window of the buffer's own rank, else None.

        Axes of extent 1 may be left out of the view.
        """
        left = list(zip(self.vars, self.shape, strict=True))
        zero: Mapping[Sym, Dim] = dict.fromkeys(self.vars, 0)
        out: list[Dim] = []
        for place in self.index:
            start = substitute(place, zero)
            step = place - start
            out.append(start)
            if step == 0:
                continue
            while left and left[0][1] == 1 and step != left[0][0].expr():
                left.pop(0)
            if not left or step != left.pop(0)[0].expr():
                return None
        return None if any(extent != 1 for _, extent in left) else tuple(out)

    @property
    def extents(self) -> tuple[int, ...]:
        """Along each axis of the buffer, the extent of a view that is a window."""
        sizes: dict[Sym, int] = dict(zip(self.vars, self.shape, strict=True))
        return tuple(next((sizes[x] for x in symbols(i) if x in sizes), 1) for i in self.index)

    @property
    def is_whole(self) -> bool:
        """The view is the whole slot, axis by axis."""
        return self.shape == self.buffer.shape and self.starts == (0,) * len(self.shape)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def storage(self) -> str:
        return self.buffer.storage

    def through(self, shape: tuple[int, ...], vars: tuple[IterVar, ...],
                index: tuple[Dim, ...], fill: float | int | None = None) -> View:  # fmt: skip
        """The view of ``shape`` whose element ``vars`` is element ``index`` of this one."""
        env: dict[Sym, Dim] = dict(zip(self.vars, index, strict=True))
        inner = tuple(substitute(x, env) for x in self.index)
        return View(self.buffer, shape, vars, inner, self.slot,
                    self.fill if fill is None else fill)  # fmt: skip

    def __repr__(self) -> str:
        return f"<{self.buffer.name}{list(self.index)} of {self.shape}>"


@dataclass(frozen=True)
class Scalar:
    """An operand that lives in the instruction: a number or an index expression."""

    value: Dim | float | bool
    dtype: DType
    storage = IMMEDIATE
    shape = ()


Operand: TypeAlias = View | Scalar


def fresh_vars(shape: tuple[int, ...]) -> tuple[IterVar, ...]:
    """One variable per axis of a view."""
    return tuple(IterVar(f"v{n}", 0, max(e - 1, 0)) for n, e in enumerate(shape))


def whole(buffer: Buffer, slot: Dim = 0) -> View:
    """All of one slot."""
    names = fresh_vars(buffer.shape)
    at = tuple(v.expr() for v in names)
    return View(buffer, buffer.shape, names, at, slot)


def window(view: View, starts: tuple[Dim, ...], shape: tuple[int, ...]) -> View:
    """The part of ``view`` that starts at ``starts``, of the same rank."""
    names = fresh_vars(shape)
    at = tuple(s + v.expr() for s, v in zip(starts, names, strict=True))
    return view.through(shape, names, at)


# Synchronisation objects


@dataclass(frozen=True, eq=False)
class Barrier:
    """An array of ``slots`` mbarriers in shared memory at byte ``offset``, 8 bytes each;
    a phase of each completes after ``count`` arrivals and all bytes expected in it."""

    name: str
    slots: int
    count: int
    offset: int = 0


class Counter(Sym):
    """A running count that each role keeps: starts at 0, grows by :class:`Advance`."""

    kind = "count"


# Statements


@dataclass(frozen=True, eq=False)
class Issue:
    """One instruction, issued by the participants: ``T.instr(reads..., writes...)``.

    ``attrs`` are the instruction's parameters. A copy that completes on an mbarrier has
    ``barrier`` and ``slot`` among them once synchronisation is derived. ``tiled_mma`` reads
    (accumulator, lhs, rhs), writes the accumulator, and holds ``atom`` (with every parameter
    bound), ``repeat``, ``serial`` and ``order``; ``zero`` says that the accumulator's old
    value is not read.

    Two issues reach the shared memory of other CTAs of a cluster (:func:`reach`): a load with
    ``multicast`` axes is delivered to every CTA along them, to the same place and on the same
    barrier; a ``reduce`` of what lies in shared memory along ``over`` reads the same place of
    every CTA along them, a ``copy`` with a ``peer`` that of the CTA of this number among them.
    """

    instr: str
    reads: tuple[Operand, ...]
    writes: tuple[View, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    span: Span | None = None
    source: str = ""
    """The author's name for the value."""


@dataclass(frozen=True, eq=False)
class Sync:
    """One derived synchronisation statement, executed by the participants.

    =================  ==========================================================
    kind               meaning (``elected``: the first participant alone)
    =================  ==========================================================
    init               elected: each slot of ``barrier`` expects its count
    fence_init         elected: the initialisation is visible to other threads and engines
    wait               every participant waits until the phase of parity ``parity`` of
                       ``barrier[slot]`` has completed; on a fresh barrier parity 1 passes
    arrive             one arrival on ``barrier[slot]`` from the first thread of each ``every``
                       consecutive participants; with ``over``, on that barrier of every CTA
                       along these axes of the cluster, its own included; with ``read``, of
                       arrivals and of their waits: of what was only read, so that nothing
                       written is made visible
    expect             elected: one arrival that also expects ``bytes``
    async_arrive       each participant: one arrival once its earlier cp.async completed
    barrier            bar.sync ``id`` over ``threads`` threads
    barrier_arrive     bar.arrive ``id`` over ``threads`` threads
    warp               __syncwarp of each warp
    cluster, grid      barrier over all units of the level
    cluster_arrive     the first half of a barrier of the cluster: what the participants did
                       before, released to those that wait
    cluster_wait       its second half: until all units of the cluster have come to the first
    fence_proxy        each participant: earlier generic accesses before later async ones
    wgmma_fence        registers and generic writes before the next wgmma
    wgmma_commit       closes the group of the wgmmas issued since
    wgmma_wait         at most ``pending`` groups are still in flight
    bulk_commit        elected: closes the group of bulk stores
    bulk_wait          elected: at most ``pending`` groups in flight; with ``read`` only
                       their reads of shared memory are waited for
    async_commit       each participant: closes its group of cp.async
    async_wait         each participant: at most ``pending`` of its groups in flight
    registers          setmaxnreg: each participant has ``count`` registers from here
    =================  ==========================================================
    """

    kind: str
    barrier: Barrier | None = None
    slot: Dim = 0
    parity: Dim = 0
    every: int = 0
    bytes: int = 0
    id: int = 0
    threads: int = 0
    pending: int = 0
    read: bool = False
    count: int = 0
    over: tuple[Axis, ...] = ()
    span: Span | None = None
    why: str = ""
    """What it orders, for a reader: ``lhs_ring filled``."""


@dataclass(frozen=True, eq=False)
class Advance:
    """``counter += by``, kept by each participant."""

    counter: Counter
    by: Dim = 1


@dataclass(frozen=True, eq=False)
class With:
    """The units of ``mesh`` execute ``body``; the others skip it.

    ``own`` is what this scope adds or narrows, ``source`` the binding and index it was
    written with (``threads[0, :32]``), empty for a new mesh.
    """

    own: Mesh
    mesh: Mesh
    binding: str
    body: tuple[Stmt, ...]
    source: str = ""
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class For:
    """A rolled loop; ``unroll`` asks the compiler to unroll it."""

    var: LoopVar
    start: Dim
    stop: Dim
    step: Dim
    body: tuple[Stmt, ...]
    unroll: bool = False
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class When:
    """``body`` if ``test`` is greater than 0, the same for all participants."""

    test: Dim
    body: tuple[Stmt, ...]


Stmt: TypeAlias = Issue | Sync | Advance | With | For | When


@dataclass(frozen=True, eq=False)
class PrimFunc:
    """One kernel: parameters (inputs, then outputs), local buffers, barriers, statements.

    ``shared_bytes`` of shared memory per CTA, barriers included; ``notes`` the lines in the
    head of the printed program (memory analysis, capacity findings); ``registers`` the
    estimate of each role: (its participants as printed, registers per thread, declared by
    setmaxnreg or 0).
    """

    name: str
    params: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[Barrier, ...]
    body: tuple[Stmt, ...]
    target: Any
    topologies: tuple[Topology, ...]
    shared_bytes: int = 0
    counters: tuple[Counter, ...] = ()
    notes: tuple[str, ...] = ()
    registers: tuple[tuple[str, int, int], ...] = ()
    span: Span | None = None


@dataclass(frozen=True)
class Launch:
    """One step of a program: a kernel on values by name."""

    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A lowered module: its kernels and the steps that its entry takes, in order.

    ``inputs`` name the entry's parameters, ``results`` the values it returns; a value that
    one launch makes and another takes lives in device memory.
    """

    kernels: Mapping[str, PrimFunc]
    entry: str
    inputs: tuple[str, ...]
    launches: tuple[Launch, ...]
    results: tuple[str, ...]
    weights: frozenset[str] = frozenset()
    name: str = "Program"
    """The module's name."""


def walk(body: tuple[Stmt, ...], mesh: Mesh | None = None) -> Iterator[tuple[Stmt, Mesh]]:
    """Every statement in program order with the mesh of its participants; a With comes
    before its body, with the mesh around it."""
    here = Mesh() if mesh is None else mesh
    for stmt in body:
        yield stmt, here
        if isinstance(stmt, With):
            yield from walk(stmt.body, stmt.mesh)
        elif isinstance(stmt, (For, When)):
            yield from walk(stmt.body, here)


def reach(stmt: Stmt) -> tuple[Axis, ...]:
    """Axes of CTAs whose shared memory a statement touches: () if its own CTA's alone."""
    if isinstance(stmt, Sync):
        return stmt.over
    if not isinstance(stmt, Issue):
        return ()
    if "multicast" in stmt.attrs:
        return stmt.attrs["multicast"]
    meets = stmt.attrs.get("scope") == "cluster" or "peer" in stmt.attrs
    return tuple(stmt.attrs["over"]) if meets and "over" in stmt.attrs else ()


MEETINGS = ("cluster", "cluster_arrive", "cluster_wait")
"""Barriers of a cluster: whole, and their halves."""


def coupled(func: PrimFunc) -> bool:
    """CTAs of one cluster reach each other's shared memory, or wait for one another."""
    return any(reach(s) or (isinstance(s, Sync) and s.kind in MEETINGS) for s, _ in walk(func.body))


def views(stmt: Stmt) -> tuple[View, ...]:
    """The views that a statement reads and writes."""
    if not isinstance(stmt, Issue):
        return ()
    return (*(r for r in stmt.reads if isinstance(r, View)), *stmt.writes)


__all__ = [
    "MEETINGS",
    "Advance",
    "Barrier",
    "Buffer",
    "Counter",
    "Expr",
    "For",
    "Issue",
    "Launch",
    "Operand",
    "PrimFunc",
    "Program",
    "Scalar",
    "Stmt",
    "Sync",
    "View",
    "When",
    "With",
    "coupled",
    "fresh_vars",
    "reach",
    "views",
    "walk",
    "whole",
    "window",
]
