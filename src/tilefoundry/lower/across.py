"""What CTAs of a cluster do for one another: loads that one makes for all, sums of what all have,
copies of what others hold."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import U8
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import Digit, ShardLayout
from tilefoundry.ir.types import TensorType
from tilefoundry.lower.combine import term_dtype, terms_layout
from tilefoundry.lower.storage import Stores
from tilefoundry.lower.views import own_digits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.multicast import divided, number_of
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.contract.unit import CLUSTER, scope_of, scratch_bytes, workspace_bytes
from tilefoundry.targets.target import Target
from tilefoundry.tir.plans import side
from tilefoundry.tir.program import Buffer, Issue, Operand, Scalar, Stmt, View, fresh_vars, window


class Across:
    """The part of the lowering that reaches the shared memory of other CTAs."""

    target: Target
    stores: Stores

    def _meeting(self, node: Node, over: tuple[Axis, ...], result: TensorType) -> dict[str, Any]:
        """The memory through which units combine: scratch of each CTA, workspace of the grid."""
        out: dict[str, Any] = {}
        level = self.target.levels[-1]
        shared = next((n for n in self.target.storages if self.stores.owner(n)), None)
        for key, size, storage, role in (
            ("scratch", scratch_bytes(node.mesh, over, result, level), shared, "local"),
            ("workspace", workspace_bytes(node.mesh, over, result, level), "gmem", "work"),
        ):
            if size and storage is not None:
                made = Buffer(self.stores.fresh(key), (size,), U8, storage, role=role,
                              mesh=node.mesh, span=node.span)  # fmt: skip
                self.stores.buffers.append(made)
                out[key] = made
        return out

    def _multicast(self, issue: Issue, mesh: Mesh, over: tuple[Axis, ...]) -> Issue:
        """The part of a load that one of the CTAs along ``over`` issues for all of them; the
        load as it is where there are none, or it cannot be divided."""
        source, place = issue.reads[0], issue.writes[0]
        if not over or not isinstance(source, View):
            return issue
        near, far = side(source), side(place)
        if isinstance(near, Unmet) or isinstance(far, Unmet):
            return issue
        level = self.target.levels[-1]
        axis = divided(contract_at(issue.instr), level, mesh, near, far, over)
        if axis is None:
            return issue
        size = place.shape[axis] // prod(a.extent for a in over)
        start = number_of(over) * size
        starts = tuple(start if n == axis else 0 for n in range(len(place.shape)))
        shape = tuple(size if n == axis else e for n, e in enumerate(place.shape))
        return replace(
            issue,
            reads=(window(source, starts, shape),),
            writes=(window(place, starts, shape),),
            attrs={**issue.attrs, "multicast": over},
        )

    def _terms(
        self, node: Node, source: Operand, combined: TensorType, over: tuple[Axis, ...], kind: str
    ) -> tuple[list[Stmt], Operand, tuple[Axis, ...]]:
        """What each CTA of a cluster has to give to a value combined over ``over``, in its
        shared memory, and the axes of CTAs that are left."""
        level, private = self.target.levels[-1], self.stores.private()
        inner = tuple(a for a in over if a.level == level)
        outer = tuple(a for a in over if a.level != level)
        shared = next(n for n in self.target.storages if self.stores.owner(n))
        out: list[Stmt] = []
        name = node.name or "value"
        held = combined.with_(dtype=term_dtype(combined), storage=private)
        if inner:
            made = self.stores.own(_terms_of(held, outer, kind), f"{name}_terms", node)
            attrs = {"op": "combine", "kind": kind, "over": inner,
                     "scope": scope_of(node.mesh, inner, level)}  # fmt: skip
            attrs |= self._meeting(node, inner, held)
            out.append(Issue("reduce", (source,), (made,), attrs, node.span, node.name))
            source = made
        if isinstance(source, Scalar) or source.storage != shared:
            type = held.with_(layout=terms_layout(held, level), storage=shared)
            made = self.stores.own(type, f"{name}_shared", node)
            copied = {"op": "copy"}
            out.append(Issue("copy", (source,), (made,), copied, node.span, node.name))
            source = made
        return out, source, outer

    def _parts(
        self, node: Node, before: TensorType, after: TensorType, source: View, made: View
    ) -> list[tuple[View, View, dict[str, Any]]]:
        """The copies that bring ``source`` to ``made``: where each owner of a storage has a
        part of it, of the own part, or of every owner's in turn."""
        moved = self.stores.moved_by(made)
        for d in before.digits:
            if d.axis.extent > 1 and d.axis in moved and d not in after.digits:
                # each has a place of its own for the whole, and a part of it
                refuse("lower-exchange", node.span, axis=d.axis.name, before=before, after=after)
        given = self._owned(before, node)
        shared = self.target.storages[after.storage].level is None
        parts: list[tuple[View, View, dict[str, Any]]] = [(source, made, {})]
        if shared:
            own = self._own_parts(node, before, after)
        else:
            own = [d for d in self._owned(after, node) if d not in before.digits]
        # each owner takes its own part, or leaves it where all reach it
        for d in own:
            parts = [(*_window(r, w, d, number_of((d.axis,))), a) for r, w, a in parts]
        for d in given:
            if shared or d in after.digits:
                continue
            near = d.axis.level == self.stores.owner(before.storage)
            near = near and CLUSTER in node.mesh.levels and after.storage == self.stores.private()
            if not near or any(a for _, _, a in parts):
                refuse("lower-exchange", node.span, axis=d.axis.name, before=before, after=after)
            parts = [
                (*_window(r, w, d, n), {"peer": n, "over": (d.axis,)})
                for r, w, _ in parts
                for n in range(d.axis.extent)
            ]
        return parts

    def _own_parts(self, node: Node, before: TensorType, after: TensorType) -> list[Digit]:
        """Splits by which units store their parts to device memory: of what lies in memory of
        their own, and of what several have of which each is to store a part. Registers say by
        themselves who has what."""
        level = self.target.levels[-1]
        split = [d for d in before.digits if d.axis.level != level and d.axis.extent > 1]
        outer = self.target.levels[:-1]
        axes = {d.axis for d in split}
        held = before.storage == self.stores.private()
        every = [
            *(d for found in own_digits(after, node.mesh, outer) for d in found
              if d.axis not in axes),
            *(d for found in own_digits(before, node.mesh, outer) for d in found if not held),
        ]  # fmt: skip
        return [d for d in every if d.axis.extent > 1]

    def _owned(self, type: TensorType, node: Node) -> list[Digit]:
        """Splits of a value over the owners of its storage."""
        levels = self.stores.owners(type.storage)
        return [d for found in own_digits(type, node.mesh, levels) for d in found
                if d.axis.extent > 1]  # fmt: skip


def _terms_of(held: TensorType, over: tuple[Axis, ...], kind: str) -> TensorType:
    """The type of what is still to be combined along ``over``."""
    layout = held.layout or ShardLayout(held.shape, None, (None,) * len(held.shape))
    return held.with_(layout=replace(layout, partial=tuple((a, kind) for a in over)))


def _window(read: View, write: View, d: Digit, number: Dim) -> tuple[View, View]:
    """What owner ``number`` along a split has of both ends of a copy."""
    assert isinstance(d.inner, int)
    return _part(read, d.dim, d.inner, d.axis.extent, number), _part(
        write, d.dim, d.inner, d.axis.extent, number
    )


def _part(view: View, dim: int, inner: int, units: int, number: Dim) -> View:
    """Of each run of ``units`` blocks of ``inner`` elements along ``dim``, the block ``number``."""
    shape = tuple(e // units if n == dim else e for n, e in enumerate(view.shape))
    if view.shape[dim] == inner * units:
        return window(view, tuple(number * inner if n == dim else 0 for n in range(len(shape))),
                      shape)  # fmt: skip
    names = fresh_vars(shape)
    at: list[Dim] = [v.expr() for v in names]
    at[dim] = (at[dim] // inner * units + number) * inner + at[dim] % inner
    return view.through(shape, names, tuple(at))
