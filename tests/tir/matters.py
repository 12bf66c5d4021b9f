"""Where a fault changes something: reasons from the plain reading of a program.

Nothing here knows clocks or asks the verifier; each function says what it takes to matter.
"""

from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Issue, Sync, views


def syncs(trace, *kinds):
    return [s for s in trace.members
            if isinstance(s, Sync) and s.kind in kinds and s in trace.executed]  # fmt: skip


def issues(trace):
    return [s for s in trace.members if isinstance(s, Issue) and s in trace.executed]


def needed(trace, wait):
    """Without it, something that it waits for is not known by another way to be done."""
    for block, (arrivals, waits) in enumerate(trace.links):
        events = trace.blocks[block]
        for w, place, phase, whom in waits:
            if events[w].stmt is not wait:
                continue
            after = (e.at for e in events[w:]
                     if isinstance(e.stmt, Issue) and trace.members[e.stmt] & whom)  # fmt: skip
            until = next(after, len(events))
            for a, there, k, who in arrivals:
                if there == place and k == phase and (
                    not trace.ordered(block, who, a, whom, until, wait)
                    or events[a].stmt.kind in ("expect", "async_arrive")
                ):  # fmt: skip
                    return True
    return False


def tracked(trace, commit):
    """Its copies complete on a barrier: the group is not waited for."""
    return any(trace.meet(commit, s) for s in syncs(trace, "async_arrive"))


def after_init(trace, barrier):
    """The first barrier after the initialisation: it lets the others use what was made."""
    for events in trace.blocks:
        made = False
        for e in events:
            if isinstance(e.stmt, Sync):
                made = made or e.stmt.kind == "init"
                if made and e.stmt.kind in ("barrier", "cluster", "grid"):
                    return e.stmt is barrier
    return False


def fenced(trace, fence):
    """A plain access by its participants comes before it, and an asynchronous one, with a
    write between the two, touches the same slot later in some block."""
    for events in trace.blocks:
        for e in events:
            if e.stmt is not fence:
                continue
            mine, done = [], set()
            for before in reversed(events[: e.at]):
                if isinstance(before.stmt, Sync) and before.stmt.kind == "fence_proxy":
                    if trace.meet(before.stmt, fence):
                        break
                elif trace.plain(before.stmt) and trace.meet(before.stmt, fence):
                    mine += [(u, False) for u in trace.reads(before)]
                    mine += [(u, True) for u in trace.writes(before)]
            for unit, wrote in mine:
                if (unit, wrote) in done:
                    continue
                done.add((unit, wrote))
                for after in events[e.at :]:
                    if isinstance(after.stmt, Issue) and not trace.plain(after.stmt):
                        touched = trace.writes(after) + (trace.reads(after) if wrote else [])
                        if unit in touched:
                            return True
    return False


def first_fence(trace, fence):
    """Some wgmma follows it whose registers were touched since the fence before, or that is
    the first."""
    for events in trace.blocks:
        touched, fresh = True, False
        for e in events:
            if not trace.meet(e.stmt, fence):
                continue
            if isinstance(e.stmt, Issue):
                wgmma = effects(e.stmt).completion == "wgmma"
                if wgmma and fresh:
                    return True
                touched = touched or (not wgmma and touches_accumulator(trace, e.stmt))
            elif e.stmt.kind == "wgmma_fence":
                fresh = touched and e.stmt is fence
                touched = False
    return False


def touches_accumulator(trace, issue):
    held = {v.buffer for s in issues(trace) if effects(s).completion == "wgmma"
            for v in views(s) if v.storage == "rmem"}  # fmt: skip
    return any(v.buffer in held for v in views(issue))


def hands_over(trace, sync):
    """Plain accesses of several threads to memory that somebody writes come before it, since
    the last barrier among them, and accesses to the same slots come after it, before the
    same threads meet and tell all CTAs of a cluster again."""
    written = {v.buffer for s in issues(trace) for v in s.writes}
    for events in trace.blocks:
        for e in events:
            if e.stmt is not sync:
                continue
            units = set()
            for before in reversed(events[: e.at]):
                if isinstance(before.stmt, Sync):
                    if before.stmt.kind in ("barrier", "warp", "cluster", "grid") and (
                        trace.members[before.stmt] >= trace.members[sync]
                    ):
                        break
                elif trace.plain(before.stmt) and trace.meet(before.stmt, sync):
                    units |= {(u, True) for u in trace.writes(before)}
                    units |= {(u, False) for u in trace.reads(before) if u[0] in written}
            for after in events[e.at :]:
                if _tells_again(trace, events, after, sync):
                    break
                if isinstance(after.stmt, Issue):
                    if any((u, True) in units for u in trace.reads(after)):
                        return True
                    if any((u, w) in units for u in trace.writes(after) for w in (True, False)):
                        return True
    return False


def _tells_again(trace, events, e, sync):
    """A barrier of the same threads with an arrival at other CTAs right behind it."""
    if e.stmt is sync or not isinstance(e.stmt, Sync) or e.stmt.kind != "barrier":
        return False
    behind = events[e.at + 1].stmt if e.at + 1 < len(events) else None
    told = isinstance(behind, Sync) and behind.kind == "arrive" and behind.over
    return bool(told) and trace.members[e.stmt] >= trace.members[sync]


def all_use(trace, wait):
    """The first access after the wait is one in which all participants take part."""
    for events in trace.blocks:
        for e in events:
            if e.stmt is wait:
                after = (x.stmt for x in events[e.at :] if trace.meet(x.stmt, wait))
                use = next((s for s in after if isinstance(s, Issue) and any(
                    v.storage != "rmem" for v in views(s))), None)  # fmt: skip
                if use is not None and not effects(use).elected:
                    return True
    return False


def too_early(trace, arrive, held):
    """Somebody it releases does not know by another way that ``held`` is done."""
    for block, events in enumerate(trace.blocks):
        for a, whom, until in trace.uses(block, arrive):
            if a in (at for n, at in trace.needed_arrivals[arrive] if n == block):
                done = max((e.at for e in events[:a] if e.stmt is held), default=None)
                if done is not None and not trace.ordered(
                    block, trace.members[arrive], done, whom, until, arrive
                ):
                    return True
    return False


def once(trace, loop):
    """The loop always has exactly one trip: to be inside changes nothing."""
    step = loop.step if isinstance(loop.step, int) else 0
    ends = (loop.start, loop.stop)
    return all(isinstance(x, int) for x in ends) and len(range(*ends, step)) == 1


FLAVOUR = {"wgmma_wait": "wgmma", "bulk_wait": "bulk", "async_wait": "async"}


def frontier_matters(trace, old, new):
    """With ``new`` in the place of ``old``, some group is still in flight where its completion
    is relied on: an arrival that somebody waits for releases the slot that it reads, its
    registers or the data that it brings are used, or the kernel ends."""
    flavour = FLAVOUR[old.kind]
    for n, events in enumerate(trace.blocks):
        open_, groups = [], []
        frontier, less = 0, 0
        # of a store, reads and the whole are waited for apart
        for e in events:
            stmt = e.stmt
            if not trace.meet(stmt, old):
                continue
            if isinstance(stmt, Issue) and effects(stmt).completion == flavour:
                open_.append(e)
                continue
            if isinstance(stmt, Sync) and stmt.kind == f"{flavour}_commit":
                groups.append(open_)
                open_ = []
                continue
            if isinstance(stmt, Sync) and stmt.kind == f"{flavour}_wait":
                if stmt.read and not old.read:
                    continue
                frontier = max(frontier, len(groups) - stmt.pending)
                stmt = new if stmt is old else stmt
                if stmt is not None:
                    less = max(less, len(groups) - stmt.pending)
                continue
            late = [x for g in groups[less:frontier] for x in g]
            if late and relies(trace, n, e, late, flavour, old):
                return True
        if any(g for g in groups[less:frontier]) and not old.read:
            return True
    return False


def told_later(trace, block, e, old):
    """Another wait of the same kind follows it, after which the others learn of it in time."""
    events = trace.blocks[block]
    again = next((x.at for x in events[e.at :] if isinstance(x.stmt, Sync)
                  and x.stmt.kind == old.kind and x.stmt is not old and x.stmt.pending == 0
                  and trace.meet(x.stmt, old)), None)  # fmt: skip
    return again is not None and all(
        trace.ordered(block, trace.members[e.stmt], again, whom, until, e.stmt)
        for a, whom, until in trace.uses(block, e.stmt)
        if a == e.at
    )


def relies(trace, block, e, late, flavour, old):
    stmt = e.stmt
    if isinstance(stmt, Issue):
        held = {v.buffer for x in late for v in views(x.stmt) if v.storage == "rmem"}
        brought = {u for x in late for u in trace.writes(x)} if flavour == "async" else set()
        return any(v.buffer in held for v in views(stmt)) or any(
            u in brought for u in trace.reads(e)
        )
    if stmt.kind in ("arrive", "barrier", "barrier_arrive"):
        if stmt.kind == "arrive" and (block, e.at) not in trace.needed_arrivals[stmt]:
            return False
        if flavour == "async":
            return True
        slots = {s for x in late for b, s in trace.reads(x) if b.storage == "smem"}
        if stmt.kind == "arrive" and stmt.barrier.slots > 1 and e.slot not in slots:
            return False
        if stmt.kind == "arrive" and told_later(trace, block, e, old):
            return False
        if stmt.kind == "arrive" and stmt.barrier.slots > 1:
            return True
        again = {u for x in late for u in trace.reads(x) if u[0].storage == "smem"}
        return any(
            u in again for y in trace.blocks[block][e.at :] if isinstance(y.stmt, Issue)
            for u in trace.writes(y)
        )  # fmt: skip
    return False


def together(trace, a, b):
    """One instruction reads slot 0 of both: they are alive at the same time."""
    for events in trace.blocks:
        for e in events:
            if isinstance(e.stmt, Issue) and {(a, 0), (b, 0)} <= set(trace.reads(e)):
                return True
    return False


def laps(trace, ring):
    """Its last slot is used, and so is its first."""
    if ring.slots < 2:
        return False
    for events in trace.blocks:
        touched = {
            u for e in events if isinstance(e.stmt, Issue)
            for u in (*trace.reads(e), *trace.writes(e))
        }  # fmt: skip
        if {(ring, 0), (ring, ring.slots - 1)} <= touched:
            return True
    return False
