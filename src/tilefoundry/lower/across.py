"""What CTAs of a cluster do for one another: loads that one makes for all, sums of what all have,
copies of what others hold."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import Digit
from tilefoundry.ir.types import TensorType
from tilefoundry.lower.combine import term_dtype, terms_layout
from tilefoundry.lower.storage import Stores
from tilefoundry.lower.views import own_digits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.multicast import divided, number_of
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.contract.unit import CLUSTER, scope_of
from tilefoundry.targets.target import Target
from tilefoundry.tir.plans import side
from tilefoundry.tir.program import Issue, Operand, Scalar, Stmt, View, window


class Across:
    """The part of the lowering that reaches the shared memory of other CTAs."""

    target: Target
    stores: Stores

    def _meeting(self, node: Node, over: tuple[Axis, ...], result: TensorType) -> dict[str, Any]:
        raise NotImplementedError

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
            made = self.stores.own(held, f"{name}_terms", node)
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
        given, wanted = (self._owned(t, node) for t in (before, after))
        parts: list[tuple[View, View, dict[str, Any]]] = [(source, made, {})]
        for d in wanted:
            if d not in before.digits:  # each owner takes its own
                parts = [(*self._window(r, w, d, number_of((d.axis,)), node), a)
                         for r, w, a in parts]  # fmt: skip
        for d in given:
            if d in after.digits:
                continue
            near = CLUSTER in node.mesh.levels and after.storage == self.stores.private()
            if not near or any(a for _, _, a in parts):
                refuse("lower-exchange", node.span, axis=d.axis.name, before=before, after=after)
            parts = [
                (*self._window(r, w, d, n, node), {"peer": n, "over": (d.axis,)})
                for r, w, _ in parts
                for n in range(d.axis.extent)
            ]
        return parts

    def _owned(self, type: TensorType, node: Node) -> list[Digit]:
        """Splits of a value over the owners of its storage."""
        level = self.stores.owner(type.storage)
        if level is None:
            return []
        return [d for found in own_digits(type, node.mesh, level) for d in found
                if d.axis.extent > 1]  # fmt: skip

    def _window(
        self, read: View, write: View, d: Digit, number: Dim, node: Node
    ) -> tuple[View, View]:
        """What owner ``number`` along a split has of both ends of a copy."""
        inner = d.inner
        if not isinstance(inner, int) or read.shape[d.dim] != inner * d.axis.extent:
            refuse("lower-exchange", node.span, axis=d.axis.name, before=node.args[0].tensor,
                   after=node.tensor)  # fmt: skip
        starts = tuple(number * inner if n == d.dim else 0 for n in range(len(read.shape)))
        shape = tuple(inner if n == d.dim else e for n, e in enumerate(read.shape))
        return window(read, starts, shape), window(write, starts, shape)
