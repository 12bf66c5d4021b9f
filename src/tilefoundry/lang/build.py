"""Building statement-ordered regions: nodes are typed as they are emitted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, Expr, LoopVar, bounds
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import (
    CARRY,
    CONST,
    ITEM,
    RESULT,
    Block,
    Carried,
    Loop,
    Node,
    Operation,
    Return,
    Scope,
    Stmt,
)
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import IMMEDIATE, TensorType, TupleType, Type
from tilefoundry.lang.decl import kind_of
from tilefoundry.ops import find
from tilefoundry.ops.base import Call, Context, Op, seen
from tilefoundry.ops.signature import Bound, Operand, bind


@dataclass
class ScopeDraft:
    own: Mesh
    mesh: Mesh
    binding: str
    span: Span | None
    source: str
    stmts: list[Any] = field(default_factory=list)


@dataclass
class LoopDraft:
    var: LoopVar
    start: Dim
    stop: Dim
    step: Dim
    window: Dim | None
    span: Span | None
    stmts: list[Any] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)


class Builder:
    """Emits statements of one function into nested drafts; ``freeze`` gives the block."""

    def __init__(self, context: Context, mesh: Mesh) -> None:
        self.context = context
        self.mesh = mesh
        self.stmts: list[Any] = []
        self._stack: list[list[Any]] = []
        self.used: set[Node] = set()

    def node(
        self,
        op: Operation,
        args: Sequence[Node],
        attrs: Mapping[str, Any],
        type: Type,
        span: Span | None,
        name: str = "",
    ) -> Node:
        """Emit one statement."""
        made = Node(op, tuple(args), dict(attrs), type, span, self.mesh, name)
        self.used.update(args)
        self.stmts.append(made)
        return made

    def constant(self, value: Any, dtype: DType, span: Span | None) -> Node:
        """A number or index expression as an operand of ``dtype``."""
        made = TensorType((), dtype, None, IMMEDIATE)
        return self.node(CONST, (), {"value": value}, made, span)

    def apply(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], span: Span) -> Any:
        """Bind, convert numbers, infer and emit; a tuple result comes back as its items."""
        bound = bind(f"tf.{op.name}", op.params, args, kwargs, span)
        nodes = self._operands(op, bound, span)
        types = tuple(n.tensor if n is not None else None for n in nodes)
        call = Call(op.name, types, bound.attrs, span, self.mesh, self.context, tuple(nodes))
        call = replace(call, args=tuple(self._visible(call, n, t) for n, t in enumerate(types)))
        made = op.infer(call)
        attrs = {**bound.attrs, "given": tuple(n is not None for n in nodes)}
        if all(attrs["given"]):
            del attrs["given"]
        node = self.node(op, [n for n in nodes if n is not None], attrs, made, span)
        return self.items(node)

    def items(self, node: Node) -> Any:
        """A node of tuple type as a Python tuple of its items."""
        if not isinstance(node.type, TupleType):
            return node
        return tuple(
            self.node(ITEM, (node,), {"index": i}, t, node.span)
            for i, t in enumerate(node.type.items)
        )

    def _operands(self, op: Op, bound: Bound, span: Span) -> list[Node | None]:
        given = bound.operands
        kinds = [x.tensor if isinstance(x, Node) else None for x in given]
        out: list[Node | None] = []
        for n, value in enumerate(given):
            if isinstance(value, Node) or (value is None and self._param(op, n).optional):
                out.append(value)
                continue
            if not isinstance(value, (int, float, Expr)):
                refuse("op-operand", span, op=f"tf.{op.name}", position=n, found=kind_of(value))
            if not self._param(op, n).number:
                refuse("op-operand", span, op=f"tf.{op.name}", position=n, found="a number")
            dtype = op.number_dtype(kinds)
            if dtype is None:
                refuse("op-operand", span, op=f"tf.{op.name}", position=n, found="only numbers")
            if not _holds(dtype, value):
                shown = value if len(str(value)) <= 24 else f"{str(value)[:21]}..."
                refuse("number-dtype", span, value=shown, dtype=dtype)
            out.append(self.constant(value, dtype, span))
        return out

    @staticmethod
    def _param(op: Op, n: int) -> Operand:
        """The parameter that takes operand ``n``."""
        operands = [p for p in op.params if isinstance(p, Operand)]
        return operands[min(n, len(operands) - 1)]

    def _visible(self, call: Call, n: int, type: TensorType | None) -> TensorType | None:
        """The operand as the units in force see it.

        In a storage that they share, a split over an axis that is no longer in force
        only says who wrote what; in a private one the value is not held here.
        """
        if type is None or type.layout is None:
            return type
        inside = set(self.mesh.axes)
        gone = [a for a in type.layout.split_axes if a not in inside]
        gone += [a for a, _ in type.partial if a not in inside]
        if not gone:
            return type
        for axis in gone:
            shared = self.context.shared(type.storage, axis.level)
            if not shared or axis in {a for a, _ in type.partial}:
                refuse(
                    "value-not-held",
                    call.span,
                    op=f"tf.{call.op}" if find(call.op) else call.op,
                    operand=n,
                    type=type,
                    axis=axis.name,
                    level=axis.level,
                    mesh=self.mesh,
                )
        return seen(type, self.mesh)

    def whole(self, op: str, operand: str | int, value: Node, span: Span | None) -> None:
        """Refuse a value that leaves the function unless all of it is there."""
        type = value.tensor
        for axis, kind in type.partial:
            shape = shape_text(type.shape)
            refuse("partial-consumed", span, op=op, operand=operand, axis=axis.name, kind=kind,
                   shape=shape)  # fmt: skip
        call = Call(op, (type,), {}, span, self.mesh, self.context)
        self._visible(call, 0, type)

    def enter_scope(
        self, own: Mesh, mesh: Mesh, binding: str, span: Span | None, source: str
    ) -> Mesh:
        """Open a scope; returns the mesh to restore at its end."""
        draft = ScopeDraft(own, mesh, binding, span, source)
        self.stmts.append(draft)
        self._stack.append(self.stmts)
        self.stmts = draft.stmts
        before, self.mesh = self.mesh, mesh
        return before

    def leave_scope(self, before: Mesh) -> None:
        self.stmts = self._stack.pop()
        self.mesh = before

    def enter_loop(self, draft: LoopDraft) -> None:
        self.stmts.append(draft)
        self._stack.append(self.stmts)
        self.stmts = draft.stmts

    def leave_loop(self) -> None:
        self.stmts = self._stack.pop()

    def head(self, name: str, init: Node) -> Node:
        """A loop-carried value at the head of the body (not a statement)."""
        return Node(CARRY, (), {}, init.type, init.span, self.mesh, name)

    def carry(self, draft: LoopDraft, name: str, init: Node, head: Node, step: Node) -> Node:
        """Close one carried value; its type must not change from step to step."""
        if not _unchanged(step.type, init.type):
            refuse("loop-type", draft.span, name=name, before=init.type, after=step.type)
        result = Node(RESULT, (), {}, init.type, draft.span, self.mesh, name)
        draft.carried.append(Carried(name, init, head, step, result))
        return result


def _unchanged(after: Type, before: Type) -> bool:
    if isinstance(after, TensorType) and isinstance(before, TensorType):
        return after.says_as(before)
    return after == before


def _holds(dtype: DType, value: int | float | Expr) -> bool:
    """Whether ``dtype`` has the number written in the program."""
    if isinstance(value, bool):
        return dtype.kind == "bool"
    if dtype.is_float:
        return isinstance(value, Expr) or not _overflows(dtype, value)
    if isinstance(value, float):
        if not value.is_integer():
            return False
        value = int(value)
    if dtype.kind == "bool":
        return value in (0, 1)
    low = 0 if dtype.kind == "uint" else -(1 << dtype.bits - 1)
    least, most = bounds(value)
    return low <= most and least < low + (1 << dtype.bits)


PRECISION = {"f64": (53, 1023), "f32": (24, 127), "f16": (11, 15), "bf16": (8, 127)}
"""Significand bits and largest exponent of the dtypes that are computed in (IEEE 754)."""


def _overflows(dtype: DType, value: int | float) -> bool:
    """A finite number that rounds to infinity in ``dtype``."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    bits, exponent = PRECISION.get(dtype.name, PRECISION["f32"])
    return abs(value) >= ((1 << bits + 1) - 1) << (exponent - bits)


def freeze(drafts: Sequence[Any], used: set[Node]) -> Block:
    """Drafts as a block; carried values nobody reads are dropped."""
    live = _live(drafts, used)
    return _freeze(drafts, live)


def _live(drafts: Sequence[Any], used: set[Node]) -> set[Node]:
    """Nodes that are read, counting a carried value's start and step only if it is."""
    live = set(used)
    loops: list[LoopDraft] = []
    stack = list(drafts)
    while stack:
        draft = stack.pop()
        if isinstance(draft, LoopDraft):
            loops.append(draft)
        if isinstance(draft, (LoopDraft, ScopeDraft)):
            stack += draft.stmts
    grew = True
    while grew:
        grew = False
        for loop in loops:
            for c in loop.carried:
                if (c.head in live or c.result in live) and not {c.init, c.step} <= live:
                    live |= {c.init, c.step}
                    grew = True
    return live


def _freeze(drafts: Sequence[Any], live: set[Node]) -> Block:
    out: list[Stmt] = []
    for draft in drafts:
        if isinstance(draft, ScopeDraft):
            body = _freeze(draft.stmts, live)
            out.append(Scope(draft.own, draft.mesh, draft.binding, body, draft.span, draft.source))
        elif isinstance(draft, LoopDraft):
            carried = tuple(c for c in draft.carried if c.head in live or c.result in live)
            body = _freeze(draft.stmts, live)
            out.append(
                Loop(
                    draft.var,
                    draft.start,
                    draft.stop,
                    draft.step,
                    carried,
                    body,
                    draft.span,
                    draft.window,
                )
            )
        else:
            assert isinstance(draft, (Node, Return))
            out.append(draft)
    return Block(tuple(out))
