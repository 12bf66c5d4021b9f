"""How a value comes from one place to another: copies, updates of a slice, reshards, and what
completes a value that several units have in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.check.rename import is_rename
from tilefoundry.diag import refuse
from tilefoundry.ir.expr import LoopVar, symbols
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType
from tilefoundry.lower.across import Across
from tilefoundry.lower.combine import dealt
from tilefoundry.lower.lives import is_kept
from tilefoundry.lower.places import Places
from tilefoundry.lower.storage import coordinate
from tilefoundry.lower.views import apart, fixed
from tilefoundry.ops.base import seen
from tilefoundry.targets.contract.multicast import shared_axes
from tilefoundry.targets.contract.unit import CLUSTER, scope_of
from tilefoundry.tir.program import Issue, Operand, Scalar, Stmt, View, When, window

PLACEMENT = ("type", "op", "layout", "storage")
"""Attributes of HIR that the views of TIR say."""


class Moves(Across):
    """The part of the lowering that moves values; ``home`` says where each lies."""

    home: dict[Node, Operand]
    places: Places
    varies: dict[Node, frozenset[Axis]]

    def made_in(self, node: Node, slots: int = 1) -> View:
        """The view that ``node`` is made in: its decided place, or a buffer of its own."""
        if node in self.places.of:
            return self.places.of[node]
        return self.stores.own(node.tensor, node.name or node.op.name, node, slots)

    def _issue(
        self, node: Node, path: str, reads: Sequence[Operand], write: View, **attrs: Any
    ) -> list[Stmt]:
        self.home[node] = write
        kept = {k: v for k, v in node.attrs.items() if k not in PLACEMENT}
        return [Issue(path, tuple(reads), (write,), {**kept, **attrs}, node.span, node.name)]

    def _copy(
        self, node: Node, type: TensorType, value: Node, source: Operand, place: View
    ) -> list[Stmt]:
        """A plain copy."""
        issue = Issue("copy", (source,), (place,), {"op": "copy"}, node.span, node.name)
        return [self._once(node, type, value, issue)]

    def _once(self, node: Node, type: TensorType, value: Node, issue: Issue) -> Stmt:
        """A copy of ``value``; where whole owners of the storage would store the same, one
        does."""
        out: Stmt = issue
        for axis in self._twins(node, type, value, issue.writes[0]):
            out = When(1 - coordinate(axis), (out,))
        return out

    def _twins(self, node: Node, type: TensorType, value: Node, place: View) -> list[Axis]:
        """Axes outside the innermost level whose units hold one value and store it to one
        place of the device."""
        if self.target.storages[place.storage].level is not None:
            return []
        held = {d.axis for d in seen(type, node.mesh).digits} | self.varies[value]
        held |= self.stores.moved_by(place)
        level = self.target.levels[-1]
        return [a for a in node.mesh.axes if a.level != level and a.extent > 1 and a not in held]

    def _insert_slice(self, node: Node) -> list[Stmt]:
        place, update = (self.home[a] for a in node.args)
        assert isinstance(place, View)
        decided = self.places.of.get(node)
        if decided is not None and place is not decided:
            refuse("lower-clobbered", node.span, name=node.args[0].name or "the destination")
        shape = fixed(node.args[1].tensor.shape, node.span)
        part = window(place, node.attrs["offsets"], shape)  # type: ignore[arg-type]
        self._keeps(node, part)
        self.home[node] = place
        if node in self.places.in_slice and isinstance(update, View):
            return []
        if isinstance(update, Scalar):
            return [Issue("fill", (update,), (part,), {"op": "fill"}, node.span, node.name)]
        out: list[Stmt] = []
        value = node.args[1]
        if update.buffer is place.buffer and not apart(update, part):
            spare = self.stores.own(value.tensor, f"{place.buffer.name}_part", node)
            out += self._copy(node, value.tensor, value, update, spare)
            update = spare
        there = node.tensor.with_(shape=value.tensor.shape, layout=None)
        given = seen(value.tensor, node.mesh)
        if self.target.storages[there.storage].level is None:
            [(update, part, _)] = self._parts(node, given, there, update, part)
        return out + self._copy(node, value.tensor, value, update, part)

    def _keeps(self, node: Node, part: View) -> None:
        """Refuses an update, of ``part``, that destroys what is still to be read."""
        lives = self.places.lives
        for found in lives.clobbered(node):
            by: Node | None = found.use.by
            while by is not None and by not in self.home:  # a view that is made later
                by = lives.source(by)
            read = self.home[by] if by is not None else None
            moves = any(isinstance(s, LoopVar) for i in part.index for s in symbols(i))
            if moves or not isinstance(read, View) or not apart(read, part):
                name = found.value.name or found.use.by.name or "the destination"
                refuse("lower-clobbered", node.span, name=name)

    def _reshard(self, node: Node) -> list[Stmt]:
        source = self.home[node.args[0]]
        before = seen(node.args[0].tensor, node.mesh)
        after = node.tensor
        dropped = [p for p in before.partial if p not in after.partial]
        if dropped:
            return self._complete(node, source, before, dropped)
        kept = is_kept(node) and node not in self.places.lives.copies
        if node not in self.places.of and (kept or is_rename(node)):
            self.home[node] = source
            return []
        if isinstance(source, View) and source is self.places.of.get(node):
            self.home[node] = source
            return []
        self._held(node, before, after)
        made = self.made_in(node)
        if isinstance(source, Scalar):
            return self._issue(node, "fill", (source,), made, op="fill")
        self.home[node] = made
        return self._brought(node, before, node.args[0], source, made)

    def _brought(
        self, node: Node, before: TensorType, value: Node, source: View, made: View
    ) -> list[Stmt]:
        """``value``, of type ``before``, from where it lies to where the reshard ``node`` wants
        it."""
        out: list[Stmt] = []
        for read, write, attrs in self._parts(node, before, node.tensor, source, made):
            if attrs:
                out.append(Issue("copy", (read,), (write,), {"op": "copy", **attrs}, node.span,
                                 node.name))  # fmt: skip
            else:
                out += self._copy(node, before, value, read, write)
        return out

    def _held(self, node: Node, before: TensorType, after: TensorType) -> None:
        """Whoever has a copy of the storage of ``after`` to itself already holds in registers
        what is to lie there: a split over such units may be dropped by no copy."""
        levels, level = self.target.levels, self.target.storages[after.storage].level
        if before.storage != self.stores.private() or level is None:
            return
        alone = levels[: levels.index(level) + 1]
        missing = [d for d in before.digits if d not in after.digits and d.axis.extent > 1
                   and d.axis.level in alone]  # fmt: skip
        if missing:
            refuse("lower-exchange", node.span, axis=missing[0].axis.name, before=before,
                   after=after)  # fmt: skip

    def _complete(
        self, node: Node, source: Operand, before: TensorType, dropped: Sequence[tuple[Axis, str]]
    ) -> list[Stmt]:
        """A partial value combined over the axes it is partial on."""
        kinds = {kind for _, kind in dropped}
        if len(kinds) > 1:
            refuse("lower-op", node.span, op="tf.reshard", why="it combines in two different ways")
        over = tuple(axis for axis, _ in dropped)
        scope = scope_of(node.mesh, over, self.target.levels[-1])
        combined = before.with_(
            layout=None if before.layout is None else _without_partial(before.layout, dropped)
        )
        self._held(node, combined, node.tensor)
        # whoever gives a term of an element takes the element, then each keeps its own
        direct = node.tensor.storage == self.stores.private() and (
            scope == CLUSTER or not any(d.axis in over for d in node.tensor.digits)
        )
        out: list[Stmt] = []
        if combined.storage != self.stores.private():
            # terms that lie in memory are added up in registers, by all threads
            private = combined.with_(storage=self.stores.private())
            combined = dealt(private, node.mesh, self.target.levels[-1])
            if scope != CLUSTER:
                direct = False
                held = self.stores.own(_partial(combined, dropped), f"{node.name}_terms", node)
                out += self._copy(node, before, node.args[0], source, held)
                source = held
        place = self.made_in(node) if direct else self.stores.own(combined, node.name, node)
        if scope == CLUSTER:
            out, source, over = self._terms(node, source, combined, over, next(iter(kinds)))
        attrs = {"op": "combine", "kind": next(iter(kinds)), "scope": scope, "over": over}
        attrs |= self._meeting(node, over, combined) if scope != CLUSTER else {}
        out.append(Issue("reduce", (source,), (place,), attrs, node.span, node.name))
        self.home[node] = place
        if not direct:
            made = self.home[node] = self.made_in(node)
            out += self._brought(node, combined, node, place, made)
        return out

    def _carried(
        self, node: Node, path: str, attrs: dict[str, Any], source: Operand, place: View
    ) -> list[Stmt]:
        """A scheduled copy: of what each owner of a storage has, or of a tile for several."""
        taken, made = (a.tensor for a in node.args)
        parts: list[tuple[Operand, View, dict[str, Any]]] = [(source, place, {})]
        if isinstance(source, View):
            self._held(node, seen(taken, node.mesh), made)
            parts = [*self._parts(node, seen(taken, node.mesh), made, source, place)]
        axes = shared_axes(node.mesh, self.stores.owner(place.storage), self.varies[node.args[0]],
                           made, self.stores.loops)  # fmt: skip
        out: list[Stmt] = []
        for read, write, peer in parts:
            if peer and path != "copy":
                refuse("lower-exchange", node.span, axis=peer["over"][0].name, before=taken,
                       after=made)  # fmt: skip
            issue = Issue(path, (read,), (write,), {**attrs, **peer}, node.span, node.name)
            if not peer:
                issue = self._multicast(issue, node.mesh, axes)
            out.append(self._once(node, taken, node.args[0], issue))
        return out


def _partial(type: TensorType, over: Sequence[tuple[Axis, str]]) -> TensorType:
    """``type`` as one of the terms of each unit along axes."""
    assert type.layout is not None
    return type.with_(layout=replace(type.layout, partial=tuple(over)))


def _without_partial(
    layout: ShardLayout, dropped: Sequence[tuple[Axis, str]]
) -> ShardLayout | None:
    kept = tuple(p for p in layout.partial if p not in dropped)
    out = ShardLayout(layout.shape, layout.stride, layout.axes, kept, layout.swizzle, layout.offset)
    return None if out.is_plain else out
