"""cache_update: out = cache, but out[.., cur_pos + t, ..] = new[.., t, ..] for 0 <= t < s.

Moves bits; nothing is rounded. ``cache`` and ``new`` have one layout, of any rank: the
sequence axis is the one on which they differ, ``s`` tokens in ``new`` and the capacity
in ``cache``, as in cache[batch, capacity, heads, width] with new[batch, s, heads, width]
or cache[batch, heads, capacity, width] with new[batch, heads, s, width]. Shapes that
are equal replace the whole cache, with ``cur_pos`` 0. ``cur_pos`` is an index
expression, a tensor of rank 0 or of shape (1,), or one position per row of axis 0.
A position beyond the capacity is refused at evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.access import AccessRelation, Coord, Indirect, domain
from tilefoundry.ir.dtype import I64, DType
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import as_bits, demand_index, demand_same, partial_alike
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, integer


def sequence_axis(cache: Shape, new: Shape, s: Dim) -> int | None:
    """The axis of ``s`` tokens in ``new`` and the capacity in ``cache``, None if there is none.

    Equal shapes replace the whole at position 0, so any axis of extent ``s`` will do;
    the last is not the row axis where another has it.
    """
    if len(cache) != len(new):
        return None
    differ = [n for n, (a, b) in enumerate(zip(cache, new, strict=True)) if a != b]
    if len(differ) > 1:
        return None
    found = [n for n in differ or range(len(new)) if new[n] == s]
    return found[-1] if found else None


class CacheUpdate(Op):
    name = "cache_update"
    params = (
        Operand("cache"),
        Operand("new"),
        Operand("cur_pos", number=True),
        Attr("s", integer),
    )
    examples = (
        Example(
            (((2, 9, 3, 4), "bf16"), ((2, 1, 3, 4), "bf16"), ((), "i64")),
            {"s": 1},
            ("any", "any", "index"),
        ),
        Example(
            (((2, 3, 9, 4), "f32"), ((2, 3, 1, 4), "f32"), ((2,), "i32")),
            {"s": 1},
            ("any", "any", "index"),
        ),
        Example(
            (((2, 9, 4), "fp8e4m3"), ((2, 1, 4), "fp8e4m3"), ((1,), "i64")),
            {"s": 1},
            ("any", "any", "index"),
        ),
        Example(
            (((2, 9, 4), "f16"), ((2, 0, 4), "f16"), ((), "i64")), {"s": 0}, ("any", "any", "index")
        ),
    )

    def number_dtype(self, args: Any) -> DType | None:
        return I64

    def sequence(self, call: Call) -> int:
        """The sequence axis; refuses shapes that do not have one of ``s`` tokens."""
        cache, new, s = call.arg(0), call.arg(1), call.attrs["s"]
        axis = sequence_axis(cache.shape, new.shape, s)
        if axis is None:
            call.refuse("cache-update-shapes", cache=cache, new=new, s=s)
            raise AssertionError
        return axis

    def results(self, call: Call) -> tuple[Result, ...]:
        cache, new, pos = call.arg(0), call.arg(1), demand_index(call, 2)
        demand_same(call, cache, new)
        axis = self.sequence(call)
        rows = pos.shape not in ((), (1,))
        if rows and (axis == 0 or pos.shape != cache.shape[:1]):
            wants = f"cur_pos of rank 0, of shape (1,) or one per row of {cache}"
            call.refuse("index-shapes", wants=wants, found=pos)
        return (Result(cache.shape, cache.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis, pos = self.sequence(call), call.arg(2)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        read: tuple[Coord, ...] = (*here[:axis], Indirect(2), *here[axis + 1 :])
        row: tuple[Coord, ...] = () if pos.rank == 0 else (0,) if pos.shape == (1,) else here[:1]
        return AccessRelation(dims, (here, read, row), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        refuse_partial("tf.cache_update", (None, None, call.args[2]), call.span)
        return partial_alike("tf.cache_update", call.args[:2], call.span)

    def storage(self, call: Call) -> str:
        """With the cache: it is updated where it lies."""
        return call.arg(0).storage

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        cache, new, cur_pos = args
        assert isinstance(result, TensorType)
        axis = sequence_axis(tuple(cache.shape), tuple(new.shape), attrs["s"])
        assert axis is not None
        tokens, capacity = new.shape[axis], cache.shape[axis]
        starts = torch.as_tensor(cur_pos).reshape(-1).tolist()
        out, bits = as_bits(cache).clone(), as_bits(new)
        rows = (
            [(out, bits)]
            if len(starts) == 1
            else [(out.narrow(0, n, 1), bits.narrow(0, n, 1)) for n in range(len(starts))]
        )
        for start, (into, part) in zip(starts, rows, strict=True):
            if start < 0 or start + tokens > capacity:
                refuse(
                    "cache-update-range",
                    None,
                    op="tf.cache_update",
                    start=start,
                    tokens=tokens,
                    capacity=capacity,
                    last=capacity - tokens,
                )
            into.narrow(axis, start, tokens).copy_(part)
        return out.view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = CacheUpdate()
