"""What unary and binary share: the operation is named by an attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.types import Type
from tilefoundry.ops import find
from tilefoundry.ops.base import Call, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, choice


class ByKind(Op):
    """Type, evaluation and cost are those of the operation that ``kind`` names."""

    def __init__(
        self, name: str, operands: Sequence[Operand], kinds: Sequence[str], examples: Any
    ) -> None:
        self.name = name
        self.params = (*operands, Attr("kind", choice(*kinds)))
        self.examples = tuple(examples)

    def named(self, attrs: Mapping[str, Any]) -> Op:
        """The operation that the attributes name."""
        found = find(attrs["kind"])
        assert found is not None
        return found

    def _as(self, call: Call) -> tuple[Op, Call]:
        """The operation that is meant, and the call as one of it."""
        op = self.named(call.attrs)
        attrs = {p.name: p.default for p in op.params if isinstance(p, Attr)}
        return op, replace(call, op=op.name, attrs=attrs)

    def results(self, call: Call) -> tuple[Result, ...]:
        op, named = self._as(call)
        return op.results(named)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        op, named = self._as(call)
        return op.relation(named, shapes)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        op, named = self._as(call)
        return op.partial(named)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        return self.named(attrs).evaluate(args, attrs, result)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        op, named = self._as(call)
        return op.work(named, shapes)
