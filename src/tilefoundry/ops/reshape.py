"""reshape: out[i] = x[j] where i and j have the same row-major linear index.

Moves bits; nothing is rounded. One extent of ``new_shape`` may be -1: what is left.
Splits are carried: a split of axis d whose blocks are ``inner`` long is the digit of
the linear index with stride inner · (extents after d); it stays where that digit
lies inside one axis of the result, and is refused where it straddles two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim, bounds, product
from tilefoundry.ir.shard import Digit, from_digits, shape_text
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import exact
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial, partial_moved
from tilefoundry.ops.signature import Attr, Operand, integers


@dataclass(frozen=True)
class Group:
    """Neighbouring axes of x and of the result that hold the same elements."""

    old: range
    new: range


def groups(old: Shape, new: Shape) -> Iterator[Group]:
    """The finest groups that the extents prove; products of each side are equal."""
    if any(e == 0 for e in (*old, *new)):
        yield Group(range(len(old)), range(len(new)))
        return
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        held: Dim = 1
        made: Dim = 1
        while a == i or b == j or held != made:
            more_old = a < len(old) and (b == len(new) or a == i or not _larger(held, made))
            if not more_old and b == len(new):
                break
            if more_old:
                held, a = held * old[a], a + 1
            else:
                made, b = made * new[b], b + 1
        yield Group(range(i, a), range(j, b))
        i, j = a, b


def _larger(a: Dim, b: Dim) -> bool:
    """Whether the other side must grow: a is b times something, or surely the larger."""
    return exact(a, b) is not None or (exact(b, a) is None and bounds(a - b)[0] > 0)


class Reshape(Op):
    name = "reshape"
    params = (Operand("x"), Attr("new_shape", integers))
    examples = (
        Example((((4, 6), "f32"),), {"new_shape": (2, 12)}),
        Example((((4, 6), "bf16"),), {"new_shape": (3, -1)}),
        Example((((2, 3, 4), "fp8e4m3"),), {"new_shape": (6, 4)}),
        Example((((24,), "i32"),), {"new_shape": (2, 1, 3, 4)}),
        Example((((6, 4), "f16"),), {"new_shape": (4, 6)}),
        Example((((0, 4), "i64"),), {"new_shape": (2, 0, 5)}),
        Example((((1, 1), "f64"),), {"new_shape": ()}),
    )

    def shape(self, call: Call) -> Shape:
        """The result's shape with -1 resolved; refuses another number of elements."""
        x, new = call.arg(0), call.attrs["new_shape"]
        holes = [n for n, e in enumerate(new) if e == -1]
        if len(holes) > 1 or any(bounds(e)[1] < 0 for e in new if e != -1):
            self._misfit(call)
        if not holes:
            if product(new) != x.size:
                self._misfit(call)
            return new
        left, known = list(x.shape), [e for e in new if e != -1]
        for extent in tuple(known):  # equal extents cancel even where they may be 0
            if extent in left and extent != 0:
                left.remove(extent)
                known.remove(extent)
        rest = exact(product(left), product(known))
        if rest is None:
            self._misfit(call)
        return tuple(rest if n in holes else e for n, e in enumerate(new))  # type: ignore[misc]

    def _misfit(self, call: Call) -> None:
        x, new = call.arg(0), call.attrs["new_shape"]
        call.refuse("reshape-size", type=x, size=x.size, new=shape_text(new))

    def results(self, call: Call) -> tuple[Result, ...]:
        return (Result(self.shape(call), call.arg(0).dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        old, new = call.arg(0).shape, shapes[0]
        dims = domain((f"i{n}", e, False) for n, e in enumerate(new))
        here = tuple(d.var.expr() for d in dims)
        read: list[Dim] = []
        for group in groups(old, new):
            linear: Dim = 0
            for n in group.new:
                linear = linear * new[n] + here[n]
            for n in group.old:
                after = product(old[m] for m in group.old if m > n)
                if after == 0 or old[n] == 1 or old[n] == 0:
                    read.append(0)
                    continue
                index = linear // after
                read.append(index if n == group.old.start else index % old[n])
        return AccessRelation(dims, (tuple(read),), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_moved(call.args)

    def infer(self, call: Call) -> Type:
        x, new = call.arg(0), self.shape(call)
        if new == x.shape:
            return x
        digits = tuple(self._carried(call, d, new) for d in x.digits if d.axis.extent > 1)
        layout = from_digits(new, digits, x.partial) if digits or x.partial else None
        return TensorType(new, x.dtype, layout, x.storage)

    def _carried(self, call: Call, digit: Digit, new: Shape) -> Digit:
        """``digit`` of x as a digit of one result axis; refuses where there is none."""
        x = call.arg(0)
        group = next(g for g in groups(x.shape, new) if digit.dim in g.old)
        stride = digit.inner * product(x.shape[m] for m in group.old if m > digit.dim)
        for n in group.new:
            inner = exact(stride, product(new[m] for m in group.new if m > n))
            if inner is not None and exact(new[n], inner * digit.axis.extent) is not None:
                return Digit(digit.axis, n, inner)
        rest = tuple(d for d in x.digits if d.axis != digit.axis)
        call.refuse(
            "reshape-splits",
            axis=digit.axis.name,
            units=digit.axis.extent,
            type=x,
            dim=digit.dim,
            new=shape_text(new),
            whole=from_digits(x.shape, rest, x.partial).text(),
        )
        raise AssertionError

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        assert isinstance(result, TensorType)
        return args[0].reshape(result.shape)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Reshape()
