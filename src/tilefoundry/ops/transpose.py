"""transpose: out[i_perm[0], i_perm[1], ...] = x[i_0, i_1, ...]: result axis k is axis perm[k] of x.

Moves bits; nothing is rounded. ``perm`` is a permutation of x's axes, negative ones
counted from the end. Splits and partial sums follow their axes. Of a value that lies as
its type says in a storage that units share, the result is the same memory: its layout is
the operand's, modes permuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.shard import Nest, ShardLayout, flat
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.layout import compact_strides
from tilefoundry.ops._movement import axis_of
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial, partial_moved
from tilefoundry.ops.signature import Attr, Operand, constants


class Transpose(Op):
    name = "transpose"
    params = (Operand("x"), Attr("perm", constants))
    examples = (
        Example((((3, 4, 5), "f32"),), {"perm": (2, 0, 1)}),
        Example((((4, 8), "bf16"),), {"perm": (-1, 0)}),
        Example((((4, 8), "fp8e4m3"),), {"perm": (1, 0)}),
        Example((((0, 4), "i32"),), {"perm": (1, 0)}),
        Example((((2, 3, 4), "bool"),), {"perm": (0, 2, 1)}),
        Example((((), "f16"),), {"perm": ()}),
    )

    def perm(self, call: Call) -> tuple[int, ...]:
        """The permutation without negative axes; refuses what is none."""
        rank = call.arg(0).rank
        out = tuple(axis_of(call, p, rank) for p in call.attrs["perm"])
        if sorted(out) != list(range(rank)):
            call.refuse("transpose-perm", perm=call.attrs["perm"], rank=rank, last=rank - 1)
        return out

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        return (Result(tuple(x.shape[p] for p in self.perm(call)), x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        perm = self.perm(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        return AccessRelation(
            dims, (tuple(here[perm.index(n)] for n in range(len(perm))),), (here,)
        )

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_moved(call.args)

    def infer(self, call: Call) -> Type:
        made = super().infer(call)
        assert isinstance(made, TensorType)
        held = call.arg(0).layout
        if held is None or held.split_axes or held.partial:
            return made
        if held.stride is None and held.swizzle is None:
            return made
        return made.with_(layout=_permuted(held, call.arg(0).shape, self.perm(call)))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        return args[0].permute(tuple(attrs["perm"]))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


def _permuted(held: ShardLayout, shape: Shape, perm: tuple[int, ...]) -> ShardLayout:
    """The layout of the same memory under permuted axes: one nest of modes per axis."""
    strides = held.strides or flat(cast(Nest, compact_strides(held.modes)))
    groups = held.groups(shape)
    order = [groups[p] for p in perm]
    modes = tuple(_nest([held.modes[m] for m in group]) for group in order)
    steps = tuple(_nest([strides[m] for m in group]) for group in order)
    axes = (None,) * len(held.modes)
    stated = None if steps == compact_strides(modes) else steps
    return ShardLayout(modes, stated, axes, swizzle=held.swizzle, offset=held.offset)


def _nest(leaves: list[Dim]) -> Nest:
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


OP = Transpose()
