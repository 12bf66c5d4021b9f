"""schedule: one tile operation by a chosen instruction; its value is the operation's.

Operands as the instruction takes them: a copy (source, destination), a matrix
instruction (accumulator, lhs, rhs), an elementwise one its operands and, if written, the
destination that states the result's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Op, Result, Shape, Work
from tilefoundry.ops.signature import Attr, Operand, anything, constant, constants


def counts_or_none(value: object, op: str, name: str, span: Span | None) -> Any:
    return None if value is None else constants(value, op, name, span)


def steps_or_none(value: object, op: str, name: str, span: Span | None) -> Any:
    """Steps, or several counts of them."""
    several = isinstance(value, tuple | list)
    return counts_or_none(value, op, name, span) if value is None or several else (
        constant(value, op, name, span)
    )  # fmt: skip


class Schedule(Op):
    name = "schedule"
    params = (
        Operand("operands", many=True),
        Attr("op", anything),
        Attr("repeat", counts_or_none, None),
        Attr("order", counts_or_none, None),
        Attr("prefetch", steps_or_none, None),
    )

    def meaning(self, call: Call) -> tuple[str, Op | None, Mapping[str, Any]]:
        """What the instruction computes: ``copy``, ``mma`` or an operation's name."""
        assert call.context.instruction is not None
        kind, attrs = call.context.instruction(call.attrs["op"], call.span)
        from tilefoundry.ops import find

        return kind, find(kind) if kind not in ("copy", "mma") else None, attrs

    def _count(self, call: Call, takes: str, least: int, most: int) -> None:
        if not least <= len(call.args) <= most:
            call.refuse("schedule-operands", instr=call.attrs["op"], takes=takes, n=len(call.args))

    def results(self, call: Call) -> tuple[Result, ...]:
        made = self.infer(call)
        assert isinstance(made, TensorType)
        return (Result(made.shape, made.dtype),)

    def infer(self, call: Call) -> Type:
        kind, op, attrs = self.meaning(call)
        if kind == "copy":
            return self._copy(call)
        if kind == "mma":
            return self._mma(call)
        assert op is not None
        inner, dst = self._split(call, op, attrs)
        made = op.infer(inner)
        if isinstance(made, TensorType):
            held = [a for a in inner.args if a is not None]
            self._contract(call, call.attrs["op"], [*held, dst or made])
        if dst is None or not isinstance(made, TensorType):
            return made
        if (dst.shape, dst.dtype) != (made.shape, made.dtype):
            call.refuse("schedule-destination", instr=call.attrs["op"], want=made, got=dst)
        return dst

    def _split(
        self, call: Call, op: Op, attrs: Mapping[str, Any]
    ) -> tuple[Call, TensorType | None]:
        arity = sum(1 for p in op.params if isinstance(p, Operand) and not p.optional)
        self._count(call, f"{arity} operands, or {arity + 1} with a destination", arity, arity + 1)
        dst = call.args[arity] if len(call.args) > arity else None
        inner = Call(op.name, call.args[:arity], attrs, call.span, call.mesh, call.context)
        return inner, dst

    def _copy(self, call: Call) -> TensorType:
        self._count(call, "(source, destination)", 2, 2)
        src, dst = call.arg(0), call.arg(1)
        if (src.shape, src.dtype) != (dst.shape, dst.dtype):
            call.refuse("schedule-destination", instr=call.attrs["op"], want=src, got=dst)
        if src.partial:
            axis, kind = src.partial[0]
            call.refuse(
                "partial-consumed",
                operand=0,
                axis=axis.name,
                kind=kind,
                shape=shape_text(src.shape),
            )
        self._legal(call, [src, dst])
        return dst

    def _contract(self, call: Call, instr: Any, operands: list[TensorType]) -> Any:
        """The use is legal by the instruction's contract, where the target has contracts."""
        if call.context.contract is None:
            return None
        return call.context.contract(instr, call.mesh, operands, call.span, call.nodes)

    def _mma(self, call: Call) -> TensorType:
        self._count(call, "(accumulator, lhs, rhs)", 3, 3)
        acc, a, b = call.arg(0), call.arg(1), call.arg(2)
        fits = acc.rank == a.rank == b.rank == 2
        fits = fits and acc.shape == (a.shape[0], b.shape[1]) and a.shape[1] == b.shape[0]
        if not fits:
            call.refuse("schedule-mma-shape", instr=call.attrs["op"], acc=acc, lhs=a, rhs=b)
        bytes_ = all(x.dtype.kind in ("int", "uint") and x.dtype.bits == 8 for x in (a, b))
        if a.dtype != b.dtype and not (a.dtype.is_narrow and b.dtype.is_narrow) and not bytes_:
            call.refuse("op-promotion", a=a.dtype, b=b.dtype)
        self._legal(call, [acc, a, b])
        return acc

    def _legal(self, call: Call, operands: list[TensorType]) -> None:
        """The contract is met, and what is written of the repeats is what follows from it."""
        instr = call.attrs["op"]
        ahead = call.attrs["prefetch"]
        fit = self._contract(call, instr.get("atom", instr), operands)
        streams = operands[2].storage == "gmem" if len(operands) > 2 else getattr(fit, "asks", 0)
        counts = ahead if isinstance(ahead, tuple) else (ahead,)
        if ahead is not None and (min(counts, default=0) < 1 or len(counts) > streams):
            call.refuse("schedule-prefetch", instr=instr, ahead=ahead)
        if fit is None:
            return
        repeat, order = call.attrs["repeat"], call.attrs["order"]
        if repeat is not None and tuple(repeat) != fit.repeat:
            call.refuse("schedule-repeat", instr=instr, derived=fit.repeat, written=tuple(repeat))
        if order is not None and sorted(order) != list(range(len(fit.repeat))):
            call.refuse("schedule-order", instr=instr, order=tuple(order), count=len(fit.repeat))

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        kind, op, attrs = self.meaning(call)
        if kind == "copy":
            return elementwise(shapes[0], (shapes[0], shapes[0]))
        if kind == "mma":
            from tilefoundry.ops.matmul import OP as MATMUL

            rel = MATMUL.relation(self.product(call), shapes)
            return AccessRelation(
                rel.domain, (rel.results[0], *rel.operands), rel.results, rel.combine
            )
        assert op is not None
        return op.relation(self._split(call, op, attrs)[0], shapes)

    def product(self, call: Call) -> Call:
        """The matrix product inside a matrix instruction, as a call of matmul."""
        attrs = {"out_dtype": call.arg(0).dtype, "a_layout": "mk", "b_layout": "kn"}
        return Call("matmul", call.args[1:], attrs, call.span, call.mesh, call.context)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        kind, inner = attrs["meaning"]
        if kind == "copy":
            return args[0]
        from tilefoundry.ops import find

        if kind == "mma":
            from tilefoundry.ops.matmul import OP as MATMUL

            acc, a, b = args
            options = {"a_layout": "mk", "b_layout": "kn"}
            return acc + MATMUL.evaluate([a, b], options, result)
        op = find(kind)
        assert op is not None
        arity = sum(1 for p in op.params if isinstance(p, Operand) and not p.optional)
        return op.evaluate(args[:arity], inner, result)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        kind, op, attrs = self.meaning(call)
        if kind == "copy":
            return Work()
        if kind == "mma":
            from tilefoundry.ops.matmul import OP as MATMUL

            return MATMUL.work(self.product(call), shapes)
        assert op is not None
        return op.work(self._split(call, op, attrs)[0], shapes)


OP = Schedule()
