"""The edges between roles as mbarriers: declarations, waits, signals and the bytes expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, bounds, substitute
from tilefoundry.ir.mesh import Axis
from tilefoundry.lower.rings import trips
from tilefoundry.lower.sync.access import Access, Accesses, bytes_of, joint
from tilefoundry.lower.sync.channel import FILL, FREE, Channel
from tilefoundry.lower.sync.edges import (
    BACKWARD,
    FORWARD,
    Edge,
    Edges,
    Level,
    Touch,
    even,
    item_at,
)
from tilefoundry.lower.sync.release import Release
from tilefoundry.lower.sync.tree import GROUP, WARP, Node, Signal, Tree, within_parts
from tilefoundry.tir.program import Barrier, For, Issue, Sync, When


@dataclass(frozen=True)
class Arrival:
    """How one role arrives: ``count`` arrivals per phase by ``kind``."""

    kind: str
    every: int
    count: int
    warp: bool = False
    role: bool = False
    """Its threads meet first."""


class Handoffs:
    """Puts the waits and signals of all edges into the tree."""

    def __init__(self, tree: Tree, accesses: Accesses, edges: Edges) -> None:
        self.tree = tree
        self.accesses = accesses
        self.edges = edges
        self.barriers: list[Barrier] = []
        self.attrs: dict[Node, dict[str, Any]] = {}
        self.asked: set[Access] = set()
        """cp.async fills whose end a barrier is told of directly."""
        self._names: set[str] = set()

    def run(self) -> None:
        channels: list[Channel] = []
        for level in self.edges.levels:
            channels += self._channels(level)
        channels += self._alone(channels)
        channels = self._merged(channels)
        channels.sort(key=lambda c: min(t.item.at for t in c.sources + [w for w, _ in c.waits]))
        for channel in channels:
            self._declare(channel)
        for channel in channels:
            self._wait(channel)
        for channel in channels:
            self._signal(channel)

    # Channels

    def _channels(self, level: Level) -> list[Channel]:
        """Writes tell who touches next; reads tell the next write."""
        filled: dict[Touch, Channel] = {}
        freed: dict[tuple[Touch, int], Channel] = {}
        for edge in level.edges:
            if edge.source.write:
                channel = filled.setdefault(edge.source, Channel(level, FILL, [edge.source]))
                channel.waits.append((edge.target, edge.direction))
            else:
                key = edge.target, edge.direction
                channel = freed.setdefault(key, Channel(level, FREE, [], [key]))
                channel.sources.append(edge.source)
            channel.over = joint(channel.over, edge.over)
        return [*filled.values(), *freed.values()]

    def _alone(self, channels: Sequence[Channel]) -> list[Channel]:
        """Fills that no one waits for: their own role does."""
        told = {a for c in channels if c.kind == FILL for t in c.sources for a in t.fills}
        out: list[Channel] = []
        for found in self.accesses.stores.values():
            for a in found:
                if a.fills and a not in told:
                    loop = a.node.loops[-1] if a.node.loops else None
                    touch = Touch(item_at(a.node, loop), a.mask, a.store, [a], [a])
                    level = Level(loop, a.store, 1, self.edges.counts.of(loop), [touch])
                    out.append(Channel(level, FILL, [touch]))
        return out

    def _merged(self, channels: Sequence[Channel]) -> list[Channel]:
        """Channels whose fills follow each other directly and have the same readers are one,
        as are the signals by which those readers give the slots back; they go as far as any
        of them has to, along nested axes."""
        runs = self._runs()

        def items(touches: Sequence[Touch]) -> frozenset[object]:
            return frozenset((t.item, t.mask, *(a.node for a in t.accesses)) for t in touches)

        def group(touches: Sequence[Touch]) -> object:
            return frozenset(
                runs.get(t.item, t) if t.write and len(t.accesses) == 1 else t for t in touches
            )

        made: dict[object, list[Channel]] = {}
        for channel in channels:
            waiting = [t for t, _ in channel.waits]
            if channel.kind == FILL:
                who = group(channel.sources), items(waiting)
            else:
                who = items(channel.sources), group(waiting)
            when = frozenset((t.item.at if channel.kind == FILL else 0, d)
                             for t, d in channel.waits)  # fmt: skip
            key = channel.kind, channel.place, channel.level.count, who, when
            alike = made.setdefault(key, [])
            known = next((c for c in alike if _nested(c.over, channel.over)), None)
            if known is None:
                alike.append(channel)
                continue
            known.sources += channel.sources
            known.waits += channel.waits
            known.over = joint(known.over, channel.over)
        return [c for alike in made.values() for c in alike]

    def _runs(self) -> dict[Node, tuple[Node, str]]:
        """Fills of shared memory that directly follow each other, as their first."""
        out: dict[Node, tuple[Node, str]] = {}
        last: tuple[Node, str] | None = None
        previous: Node | None = None
        for node in self.tree.walk():
            filled = [a for a in self.accesses.of.get(node, ()) if self._filling(a)]
            if not filled:
                last = None
                continue
            follows = previous is not None and previous.block is node.block
            if last is None or not follows or last[1] != filled[0].engine:
                last = node, filled[0].engine
            previous = node
            out[node] = last
        return out

    def _filling(self, a: Access) -> bool:
        return a.write and not a.read and a.store in self.accesses.stores

    # Declaration

    def _declare(self, channel: Channel) -> None:
        loop = channel.level.loop
        if loop is not None:
            even(loop, self.tree.level)
        total = 0
        for touch in self._signallers(channel):
            if touch.fills:
                assert not channel.over, "no other CTA sees bytes arrive"
                total += 1
            if self._plain(touch):
                total += self._arrival(channel, touch).count * _count(channel.over)
        stored = channel.sources if channel.kind == FILL else [t for t, _ in channel.waits]
        first = next(a for t in stored for a in t.accesses if a.store == t.store)
        name = self._fresh(f"{first.buffer.name}_{'full' if channel.kind == FILL else 'empty'}")
        channel.barrier = Barrier(name, channel.level.slots, total)
        self.barriers.append(channel.barrier)

    def _fresh(self, name: str) -> str:
        made, n = name, 2
        while made in self._names:
            made, n = f"{name}_{n}", n + 1
        self._names.add(made)
        return made

    def _signallers(self, channel: Channel) -> list[Touch]:
        """The touches that signal: of several merged ones of a role, the last, for all."""
        out: dict[tuple[int, bool], Touch] = {}
        for touch in channel.sources:
            key = touch.mask, bool(touch.fills)
            known = out.get(key)
            if known is None or (touch.item.at > known.item.at and not touch.fills):
                out[key] = touch
        return list(out.values())

    def _plain(self, touch: Touch) -> list[Access]:
        return [a for a in touch.accesses if not a.fills]

    def _own(self, channel: Channel, touch: Touch) -> list[Access]:
        """All that the role of ``touch`` does to the channel's stores at its level."""
        stores = {t.store for t in channel.sources}
        levels = [x for x in self.edges.levels if x.loop is channel.level.loop]
        return [
            a
            for level in levels
            if level.store in stores
            for t in level.touches
            if t.mask & touch.mask == t.mask
            for a in t.accesses
            if not a.fills
        ]

    def _others(self, channel: Channel, touch: Touch) -> list[Access]:
        stores = {t.store for t in channel.sources}
        return [
            a for s in stores for a in self.accesses.stores[s]
            if a.over or a.mask & touch.mask != a.mask
        ]  # fmt: skip

    def _arrival(self, channel: Channel, touch: Touch) -> Arrival:
        units = self._units(touch.mask)
        own = self._own(channel, touch)
        engines = {a.engine for a in own}
        reach = self._others(channel, touch)
        if engines == {"bulk"}:
            return Arrival("arrive", len(self._units(touch.scope)), 1)
        if engines == {"wgmma"} and within_parts(units, GROUP):
            return Arrival("arrive", GROUP, len(units) // GROUP)
        direct = not channel.over and all(a.proxy == "generic" for a in reach)
        if engines == {"async"} and direct:
            self.asked |= set(own)
            return Arrival("async_arrive", 0, len(units))
        if within_parts(units, WARP):
            if channel.over and len(units) > WARP:  # one message to each CTA, not one a warp
                return Arrival("arrive", len(units), 1, role=True)
            return Arrival("arrive", WARP, len(units) // WARP, warp=True)
        return Arrival("arrive", 1, len(units))

    def _units(self, mask: int) -> list[int]:
        scope = self.tree.scopes.get(mask)
        mesh = scope.mesh if scope is not None else self.tree.root.mesh
        if not mesh.at(self.tree.level):
            return list(range(self.tree.threads))
        return mesh.units(self.tree.level)

    # Waits

    def _wait(self, channel: Channel) -> None:
        level, barrier = channel.level, channel.barrier
        slots = level.slots
        done: set[tuple[Node, int, int]] = set()
        for touch, direction in sorted(channel.waits, key=lambda w: w[0].item.at):
            first = self._first(channel, touch)
            if any((first, touch.mask, d) in done for d in (FORWARD, direction)):
                continue
            if channel.kind == FILL and direction == BACKWARD and self._forward(channel, touch):
                continue
            done.add((first, touch.mask, direction))
            turn = level.count // slots + (1 if direction == BACKWARD else 0)
            wait = Sync(
                "wait", barrier=barrier, slot=level.count % slots, parity=turn % 2,
                read=channel.reads, why=self._why(channel),
            )  # fmt: skip
            # a phase that comes once cannot overtake a thread that the others do not wait for
            once = bounds(level.count)[1] < slots
            self.tree.before(first, touch.scope if once else touch.mask, wait)

    def _forward(self, channel: Channel, touch: Touch) -> bool:
        return any(t is touch and d == FORWARD for t, d in channel.waits)

    def _first(self, channel: Channel, touch: Touch) -> Node:
        """Where the role of ``touch`` waits: before the first of merged fills."""
        if channel.kind == FILL:
            return touch.item
        mine = [t.item for t, _ in channel.waits if t.mask == touch.mask]
        return min(mine, key=lambda n: n.at)

    def _why(self, channel: Channel) -> str:
        stored = channel.sources if channel.kind == FILL else [t for t, _ in channel.waits]
        names = dict.fromkeys(a.buffer.name for t in stored for a in t.accesses)
        return f"{', '.join(names)} {channel.kind}"

    # Signals

    def _signal(self, channel: Channel) -> None:
        fills = [t for t in channel.sources if t.fills]
        if fills:
            self._expect(channel, fills)
        for touch in self._signallers(channel):
            if self._plain(touch):
                self._arrive(channel, touch)

    def _expect(self, channel: Channel, touches: Sequence[Touch]) -> None:
        """One arrival that expects the bytes of all fills, before the first of them."""
        level = channel.level
        barrier, slot = channel.barrier, level.count % level.slots
        assert barrier is not None
        total = 0
        for fill in (a for t in touches for a in t.fills):
            issue = fill.node.stmt
            assert isinstance(issue, Issue)
            if fill.node in self.attrs:
                refuse("sync-fill-levels", issue.span, name=fill.buffer.name)
            self.attrs[fill.node] = {"barrier": barrier, "slot": slot}
            total += bytes_of(fill.view) * self._repeats(fill, level) * _count(fill.over)
        first = min((t for t in touches), key=lambda t: t.item.at)
        expect = Sync("expect", barrier=barrier, slot=slot, bytes=total, why=self._why(channel))
        if isinstance(first.item.stmt, When):
            inside = first.fills[0].node
            self.tree.before(inside, first.scope, expect)
            other = Sync("expect", barrier=barrier, slot=slot, bytes=0, why=self._why(channel))
            self.tree.after(first.item, first.scope, When(1 - first.item.stmt.test, (other,)))
        else:
            self.tree.before(first.item, first.scope, expect)
        if not channel.waits:
            wait = Sync("wait", barrier=barrier, slot=slot, parity=level.count // level.slots % 2,
                        why=self._why(channel))  # fmt: skip
            self.tree.after(touches[-1].item, first.mask, wait)

    def _repeats(self, fill: Access, level: Level) -> int:
        """How often a fill runs in one iteration of the level."""
        inner = [n for n in fill.node.loops if level.loop is None or level.loop in n.loops]
        runs = [trips(n.stmt) for n in inner]  # type: ignore[arg-type]
        tests = [n for n in fill.node.above() if isinstance(n.stmt, When)]
        issue = fill.node.stmt
        assert isinstance(issue, Issue)
        if not all(isinstance(n, int) for n in runs) or (inner and tests):
            refuse("sync-fill-levels", issue.span, name=fill.buffer.name)
        return prod(max(int(n), 0) for n in runs)  # type: ignore[arg-type]

    def _arrive(self, channel: Channel, touch: Touch) -> None:
        level, barrier = channel.level, channel.barrier
        how = self._arrival(channel, touch)
        own = self._own(channel, touch)
        generic = [a for a in own if a.proxy == "generic"]
        fence = how.kind == "arrive" and any(
            b.proxy == "async" and (a.write or b.write)
            for a in generic
            for b in self._others(channel, touch)
        )
        why = self._why(channel)

        def arrive(slot: Dim) -> Sync:
            return Sync(how.kind, barrier=barrier, slot=slot, every=how.every, over=channel.over,
                        read=channel.reads, why=why)  # fmt: skip

        when = Release(self.tree, self.accesses, channel, touch, own)
        if when.later:
            self._later(channel, touch, when, arrive)
            return
        accesses = () if how.kind == "async_arrive" else tuple(own)
        signal = Signal(accesses, arrive(level.count % level.slots), fence, how.warp, how.role)
        if when.use is not None:
            self.tree.before(when.use, touch.mask, signal, first=True)
            return
        alone = how.count == 1 and not how.warp and not how.role
        scope = touch.scope if alone else touch.mask
        self.tree.after(touch.item, scope, signal)

    def _later(
        self, channel: Channel, touch: Touch, when: Release, arrive: Callable[[Dim], Sync]
    ) -> None:
        """The slot of each iteration is given back in the next, the last one after the loop."""
        level, loop = channel.level, channel.level.loop
        assert loop is not None and isinstance(loop.stmt, For)
        stmt, slots = loop.stmt, level.slots
        runs = trips(stmt)
        counted = any(
            level.count == c.expr()  # it has moved on when the loop is over
            for c in self.edges.counts.counters.values()
        )
        last_var = stmt.start + (runs - 1) * stmt.step
        last = level.count - 1 if counted else substitute(level.count, {stmt.var: last_var})
        names = self._why(channel).removesuffix(f" {FREE}")
        if not isinstance(runs, int) or runs > 1:
            retire = Sync("wgmma_wait", pending=when.groups,
                          why=f"{names} read one iteration ago")  # fmt: skip
            before = When(stmt.var.expr() - stmt.start, (arrive((level.count - 1) % slots),))
            if when.use is None:
                self.tree.after(touch.item, touch.mask, retire, before)
            else:
                self.tree.before(when.use, touch.mask, retire, before, first=True)
        end = Sync("wgmma_wait", pending=0, why=f"{names} read")
        self.tree.after(loop, touch.mask, end)
        tail = arrive(last % slots)
        some = bounds(runs)[0] > 0
        self.tree.after(loop, touch.mask, tail if some else When(stmt.stop - stmt.start, (tail,)))


def _nested(one: Sequence[Axis], two: Sequence[Axis]) -> bool:
    return set(one) <= set(two) or set(two) <= set(one)


def _count(over: Sequence[Axis]) -> int:
    """CTAs along the axes."""
    return prod(a.extent for a in over)


__all__ = ["Channel", "Edge", "Handoffs"]
