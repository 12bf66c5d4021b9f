"""Faults put into TIR programs, one at a time, at every place where they change something.

``faults(func)`` works on any program. Each kind says by itself, from the plain reading of the
program (``reading.py``), where its change would change nothing, and leaves those places out:
a statement that no block executes; a wait that only asks a fresh barrier for the preceding
phase; an arrival in a phase that nobody waits for; a group wait after which nothing uses what
the group has done; a fence or warp barrier with nothing before it to hand over; an overlap of
buffers that are never alive together.
"""

from dataclasses import dataclass, replace
from math import prod

from matters import (
    after_init,
    all_use,
    fenced,
    first_fence,
    frontier_matters,
    hands_over,
    issues,
    laps,
    needed,
    once,
    syncs,
    together,
    too_early,
    tracked,
)
from reading import Trace
from window_faults import window_faults

from tilefoundry.ir.expr import Expr, FloorDiv, Mod, floordiv, mod, symbols
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import MEETINGS, For, Issue, PrimFunc, Sync, View, When, With, views
from tilefoundry.tir.rewrite import mapped, rebuild

SYNC = ("sync-race", "sync-proxy", "sync-registers", "sync-barrier", "sync-deadlock",
        "sync-drain")  # fmt: skip
FAMILY = {
    "drop-wait": SYNC,
    "drop-arrive": ("sync-deadlock", "sync-barrier"),
    "drop-expect": ("sync-deadlock", "sync-barrier"),
    "drop-fence-proxy": ("sync-proxy",),
    "count+1": ("sync-deadlock", "sync-barrier"),
    "count-1": SYNC,
    "bytes+16": ("sync-deadlock", "sync-barrier"),
    "bytes-16": ("sync-deadlock", "sync-barrier"),
    "parity": SYNC,
    "early-release": SYNC,
    "shallow-wait": SYNC,
    "drop-group-wait": SYNC,
    "drop-commit": SYNC,
    "drop-wgmma-fence": ("sync-registers",),
    "drop-warp": SYNC,
    "drop-barrier": SYNC,
    "narrow": ("sync-race", "sync-proxy", "sync-deadlock", "sync-barrier", "sync-registers"),
    "every*2": ("sync-deadlock", "sync-barrier", "sync-race", "sync-participants"),
    "every/2": ("sync-barrier", "sync-race", "sync-participants"),
    "threads+32": ("sync-deadlock", "sync-barrier"),
    "threads-32": ("sync-deadlock", "sync-barrier"),
    "misaligned": ("smem-plan",),
    "overlap": ("smem-plan",),
    "overlap-barrier": ("smem-plan",),
    "slots-share": ("smem-plan",),
    "modulus": SYNC,
    "drop-fence-init": ("sync-barrier",),
    "drop-init": ("sync-barrier",),
    "into-loop": ("sync-deadlock", "sync-barrier", "sync-race"),
    "no-completion": ("sync-barrier",),
    "registers": ("register-plan",),
    "shift-window": ("device-overlap", "device-unwritten", "view-bounds", "sync-race"),
    "same-window": ("device-overlap", "device-unwritten"),
    "drop-load": ("read-unwritten", "sync-registers"),
    "short-load": ("read-unwritten",),
    "drop-cluster": SYNC,
    "arrive-here": SYNC,
    "load-here": SYNC,
}
"""Kind → the families of findings of which at least one must name it."""


@dataclass(frozen=True)
class Fault:
    """A program with one fault of a kind, and where it was put."""

    kind: str
    func: PrimFunc
    where: str


def faults(func):
    """Every fault of every kind at every place of ``func`` where it changes something."""
    # statements that stand in two places become two
    func = replace(func, body=mapped(func.body, lambda s: (replace(s),)))
    trace = Trace(func)
    for kind, made in (
        *_drops(func, trace), *_counts(func, trace), *_statements(func, trace),
        *_moves(func, trace), *_groups(func, trace), *_plans(func, trace), *_rings(func, trace),
        *_clusters(func, trace), *window_faults(func, trace),
    ):  # fmt: skip
        assert kind in FAMILY, kind
        yield Fault(kind, *made)


def _words(stmt):
    if isinstance(stmt, Issue):
        return f"{stmt.instr} {[v.buffer.name for v in stmt.writes]}"
    name = stmt.barrier.name if stmt.barrier is not None else stmt.id
    return f"{stmt.kind} {name}"


def swap(func, old, *new):
    """``func`` with one statement replaced."""
    body = mapped(func.body, lambda s: new if s is old else (s,))
    return replace(func, body=body)


# ---- dropped statements


def _drops(func, trace):
    rules = {
        "wait": ("drop-wait", lambda s: trace.blocking(s) and needed(trace, s)),
        "arrive": ("drop-arrive", lambda s: trace.needed_arrivals[s]),
        "async_arrive": ("drop-arrive", lambda s: trace.needed_arrivals[s]),
        "expect": ("drop-expect", trace.waited),
        "fence_proxy": ("drop-fence-proxy", lambda s: fenced(trace, s)),
        "wgmma_commit": ("drop-commit", lambda _: True),
        "bulk_commit": ("drop-commit", lambda _: True),
        "async_commit": ("drop-commit", lambda s: not tracked(trace, s)),
        "wgmma_fence": ("drop-wgmma-fence", lambda s: first_fence(trace, s)),
        "warp": ("drop-warp", lambda s: hands_over(trace, s)),
        "fence_init": ("drop-fence-init", lambda _: True),
        "init": ("drop-init", lambda s: any(
            t.barrier is s.barrier and t.kind != "init"
            for t in syncs(trace, "wait", "arrive", "expect", "async_arrive"))),
        "barrier": ("drop-barrier", lambda s: hands_over(trace, s) or after_init(trace, s)),
    }  # fmt: skip
    for sync in syncs(trace, *rules):
        kind, matters = rules[sync.kind]
        if matters(sync):
            yield kind, (swap(func, sync), _words(sync))


# ---- wrong numbers


def _recount(func, barrier, count):
    new = replace(barrier, count=count)
    func = rebuild(func, barriers={barrier: new})

    def change(s):
        init = isinstance(s, Sync) and s.kind == "init" and s.barrier is new
        return (replace(s, count=count),) if init else (s,)

    return replace(func, body=mapped(func.body, change))


def _counts(func, trace):
    for barrier in func.barriers:
        used = [s for s in syncs(trace, "wait") if s.barrier is barrier]
        if not any(trace.blocking(s) for s in used):
            continue
        yield "count+1", (_recount(func, barrier, barrier.count + 1), barrier.name)
        if barrier.count > 1:
            yield "count-1", (_recount(func, barrier, barrier.count - 1), barrier.name)


def _statements(func, trace):
    for sync in syncs(trace, "expect"):
        if trace.waited(sync):
            yield "bytes+16", (swap(func, sync, replace(sync, bytes=sync.bytes + 16)), _words(sync))
            yield "bytes-16", (swap(func, sync, replace(sync, bytes=sync.bytes - 16)), _words(sync))
    for sync in syncs(trace, "wait"):
        yield "parity", (swap(func, sync, replace(sync, parity=1 - sync.parity)), _words(sync))
    for sync in syncs(trace, "arrive"):
        if trace.needed_arrivals[sync] and sync.every > 1:
            if len(trace.members[sync]) > sync.every:
                made = replace(sync, every=2 * sync.every)
                yield "every*2", (swap(func, sync, made), _words(sync))
            made = replace(sync, every=sync.every // 2)
            yield "every/2", (swap(func, sync, made), _words(sync))
    for sync in syncs(trace, "barrier", "barrier_arrive"):
        yield (
            "threads+32",
            (swap(func, sync, replace(sync, threads=sync.threads + 32)), _words(sync)),
        )
        if sync.threads > 32:
            yield (
                "threads-32",
                (swap(func, sync, replace(sync, threads=sync.threads - 32)), _words(sync)),
            )
    for sync in syncs(trace, "registers"):
        yield "registers", (swap(func, sync, replace(sync, count=sync.count + 4)), _words(sync))
    for issue in issues(trace):
        if "barrier" in issue.attrs:
            attrs = {k: v for k, v in issue.attrs.items() if k not in ("barrier", "slot")}
            yield "no-completion", (swap(func, issue, replace(issue, attrs=attrs)), _words(issue))
    yield from _narrowed(func, trace)


def _half(mesh):
    """The first half of the participants, along the outermost thread axis that has one."""
    axes = list(mesh.axes)
    for n, a in enumerate(axes):
        if a.level == "thread" and a.extent > 1 and a.extent % 2 == 0:
            axes[n] = Axis(a.level, a.name, a.extent // 2, a.stride, a.offset)
            return Mesh(tuple(axes), mesh.sizes)
    return None


def _meshes(body, here, out):
    for stmt in body:
        out[stmt] = here
        if isinstance(stmt, With):
            _meshes(stmt.body, stmt.mesh, out)
        elif isinstance(stmt, (For, When)):
            _meshes(stmt.body, here, out)
    return out


def _narrowed(func, trace):
    """Half of the participants skip a statement. A wait in front of statements that one
    thread executes for all is not needed by the others."""
    meshes = _meshes(func.body, Mesh(), {})
    for sync in syncs(trace, "wait", "fence_proxy", "barrier"):
        half = _half(meshes[sync])
        if half is None:
            continue
        if sync.kind == "wait" and not (
            trace.blocking(sync) and needed(trace, sync) and all_use(trace, sync)
        ):
            continue
        if sync.kind == "fence_proxy" and not fenced(trace, sync):
            continue
        yield "narrow", (swap(func, sync, With(half, half, "half", (sync,))), _words(sync))


# ---- moved statements


def _bodies(body):
    yield body
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            yield from _bodies(stmt.body)


def _moves(func, trace):
    """A release before what it waits for; an arrival behind a loop moved into the loop."""
    for body in _bodies(func.body):
        for n, stmt in enumerate(body):
            inner = stmt.body[0] if isinstance(stmt, When) and len(stmt.body) == 1 else stmt
            if isinstance(inner, Sync) and inner.kind == "arrive" and trace.needed_arrivals[inner]:
                at = next((m for m in range(n - 1, -1, -1) if _holds_back(body[m])), None)
                if at is not None and too_early(trace, inner, body[at]):
                    order = (*body[:at], stmt, *body[at:n], *body[n + 1 :])
                    yield "early-release", (_rebody(func, body, order), _words(inner))
        yield from _into_loops(func, trace, body)


def _holds_back(stmt):
    if isinstance(stmt, Sync):
        return stmt.kind in ("wgmma_wait", "bulk_wait", "async_wait")
    return isinstance(stmt, Issue) and any(v.storage == "smem" for v in views(stmt)) and (
        effects(stmt).completion == "none"
    )  # fmt: skip


def _rebody(func, old, new):
    def visit(body):
        if body is old:
            return new
        return tuple(
            replace(s, body=visit(s.body)) if isinstance(s, (With, For, When)) else s for s in body
        )

    return replace(func, body=visit(func.body))


def _into_loops(func, trace, body):
    for n, loop in enumerate(body):
        if not isinstance(loop, For):
            continue
        for m in range(n + 1, len(body)):
            scope = body[m]
            if not isinstance(scope, With):
                continue
            for sync in scope.body:
                if not (isinstance(sync, Sync) and sync.kind == "arrive"):
                    continue
                if not trace.needed_arrivals[sync] or once(trace, loop):
                    continue
                moved = replace(loop, body=(*loop.body, replace(scope, body=(sync,))))
                kept = tuple(s for s in scope.body if s is not sync)
                order = list(body)
                order[n], order[m] = moved, replace(scope, body=kept)
                yield "into-loop", (_rebody(func, body, tuple(order)), _words(sync))


# ---- groups in flight


def _groups(func, trace):
    for sync in syncs(trace, "wgmma_wait", "bulk_wait", "async_wait"):
        shallow = replace(sync, pending=sync.pending + 1)
        if frontier_matters(trace, sync, shallow):
            yield "shallow-wait", (swap(func, sync, shallow), _words(sync))
        if frontier_matters(trace, sync, None):
            yield "drop-group-wait", (swap(func, sync), _words(sync))


# ---- the memory plan


def _plans(func, trace):
    used = {v.buffer for s in issues(trace) for v in views(s)}
    tma = {v.buffer for s in issues(trace) if s.instr == "copy_async_tensor" for v in views(s)}
    shared = [b for b in func.buffers if b.offsets and b in used]
    for b in shared:
        swizzled = b.layout is not None and b.layout.swizzle is not None
        if swizzled or b in tma or b.storage != "smem":
            yield "misaligned", (_place(func, b, 0, b.offsets[0] + 16), b.name)
        if func.barriers:
            at = func.barriers[0].offset // 1024 * 1024
            if at + prod(b.shape) * b.dtype.bits // 8 > func.barriers[0].offset:
                yield "overlap-barrier", (_place(func, b, 0, at), b.name)
        if laps(trace, b):
            yield "slots-share", (_place(func, b, b.slots - 1, b.offsets[0]), b.name)
    for a in shared:
        for b in shared:
            if a is not b and a.storage == b.storage and together(trace, a, b):
                yield "overlap", (_place(func, a, 0, b.offsets[0]), f"{a.name} on {b.name}")


def _place(func, buffer, slot, offset):
    offsets = (*buffer.offsets[:slot], offset, *buffer.offsets[slot + 1 :])
    return rebuild(func, buffers={buffer: replace(buffer, offsets=offsets)})


# ---- CTAs of a cluster


def _asked_by_peers(trace, wait):
    """Other CTAs arrive on its barrier, and the next instruction reads what they have."""
    told = any(s.barrier is wait.barrier and s.over for s in syncs(trace, "arrive"))
    for events in trace.blocks if told else ():
        for e in events:
            if e.stmt is wait:
                after = (x.stmt for x in events[e.at :] if isinstance(x.stmt, Issue))
                use = next(after, None)
                return isinstance(use, Issue) and use.attrs.get("scope") == "cluster"
    return False


def _clusters(func, trace):
    """A barrier of the cluster is missing; what should go to all CTAs along an axis goes to
    fewer: arrivals, and loads whose mask has too few bits. (A combination that leaves out a CTA
    computes another value, but races with nobody: the interpreter's matter.)"""
    for kind in MEETINGS:
        for sync in syncs(trace, kind):
            yield "drop-cluster", (swap(func, sync), _words(sync))
    for sync in (s for s in syncs(trace, "wait") if _asked_by_peers(trace, s)):
        yield "drop-wait", (swap(func, sync), _words(sync))
    for sync in syncs(trace, "arrive"):
        for axis in sync.over if trace.needed_arrivals[sync] else ():
            fewer = tuple(a for a in sync.over if a is not axis)
            yield "arrive-here", (swap(func, sync, replace(sync, over=fewer)), _words(sync))
    for issue in issues(trace):
        for axis in issue.attrs.get("multicast", ()):
            fewer = tuple(a for a in issue.attrs["multicast"] if a is not axis)
            attrs = {k: v for k, v in issue.attrs.items() if k != "multicast"}
            attrs |= {"multicast": fewer} if fewer else {}
            yield "load-here", (swap(func, issue, replace(issue, attrs=attrs)), _words(issue))


# ---- one slot too few on one side


def _rings(func, trace):
    rings = [b for b in func.buffers if b.slots > 2 and laps(trace, b)]
    sides = {frozenset(trace.members[s]) for s in issues(trace)
             for v in views(s) if v.buffer in rings}  # fmt: skip
    # where one side does it all, fewer slots are another ring, not a disagreement
    sides = sides if len(sides) > 1 else set()
    for slots in sorted({b.slots for b in rings}):
        for side in sorted(sides, key=sorted):
            counts = set()
            for s in trace.members:
                if trace.members[s] == side:
                    counts |= {_numerator(x, slots) for x in _slots(s)} - {None}

            def change(s, counts=counts, side=side, slots=slots):
                if not isinstance(s, (Issue, Sync)) or s not in trace.members:
                    return (s,)
                return (_resized(s, counts, slots),) if trace.members[s] == side else (s,)

            if counts:
                made = replace(func, body=mapped(func.body, change))
                yield "modulus", (made, f"{slots} slots, {len(side)} threads")


def _slots(stmt):
    if isinstance(stmt, Issue):
        return [v.slot for v in views(stmt)]
    # a side whose own waits and accesses keep their slots still has all of them
    return [stmt.slot] if isinstance(stmt, Sync) and stmt.kind == "wait" else []


def _numerator(x, slots):
    if isinstance(x, Expr) and len(x.terms) == 1 and len(x.terms[0][0]) == 1:
        atom = x.terms[0][0][0]
        if isinstance(atom, Mod) and atom.den == slots:
            return atom.num
    return None


def _fewer(x, counts, slots):
    """``count % slots`` and ``count // slots`` with one slot less."""
    if not isinstance(x, Expr):
        return x
    total = 0
    for mono, coef in x.terms:
        value = coef
        for atom in mono:
            if isinstance(atom, (Mod, FloorDiv)):
                make = mod if isinstance(atom, Mod) else floordiv
                if atom.den == slots and ((isinstance(atom, Mod) and atom.num in counts)
                                          or (isinstance(atom, FloorDiv) and _floor_of(atom, counts))):  # noqa: E501  # fmt: skip
                    value = value * make(atom.num, slots - 1)
                else:
                    value = value * make(_fewer(atom.num, counts, slots), atom.den)
            else:
                value = value * atom.expr()
        total = total + value
    return total


def _floor_of(atom, counts):
    return any(symbols(atom.num) == symbols(c) for c in counts)


def _resized(stmt, counts, slots):
    if isinstance(stmt, Sync):
        return replace(stmt, slot=_fewer(stmt.slot, counts, slots),
                       parity=_fewer(stmt.parity, counts, slots))  # fmt: skip

    def view(v):
        return replace(v, slot=_fewer(v.slot, counts, slots)) if isinstance(v, View) else v

    attrs = dict(stmt.attrs)
    if "slot" in attrs:
        attrs["slot"] = _fewer(attrs["slot"], counts, slots)
    reads, writes = tuple(map(view, stmt.reads)), tuple(map(view, stmt.writes))
    return replace(stmt, reads=reads, writes=writes, attrs=attrs)


__all__ = ["FAMILY", "Fault", "faults"]
