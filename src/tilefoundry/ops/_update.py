"""What updates by a list of positions share: ``index_add`` and ``index_copy``."""

from __future__ import annotations

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.shard import shape_text
from tilefoundry.ops._movement import axis_of, demand_index, demand_same
from tilefoundry.ops.base import Call, Op, Result, Shape
from tilefoundry.ops.propagate import Partial, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, constant


class Update(Op):
    """``dst`` with rows ``index[j]`` of axis ``dim`` changed by rows j of ``src``.

    Each unit holds ``index`` and ``src`` whole along ``dim`` and changes what of its
    own part of ``dst`` they name; the other axes may be split alike.
    """

    params = (Operand("dst"), Operand("index"), Operand("src"), Attr("dim", constant))

    def results(self, call: Call) -> tuple[Result, ...]:
        dst, index, src = call.arg(0), demand_index(call, 1), call.arg(2)
        demand_same(call, dst, src)
        axis = axis_of(call, call.attrs["dim"], dst.rank)
        if index.rank != 1:
            call.refuse("index-shapes", wants="an index of rank 1", found=index)
        shape = (*dst.shape[:axis], index.shape[0], *dst.shape[axis + 1 :])
        if src.shape != shape:
            call.refuse("index-shapes", wants=f"src of shape {shape_text(shape)}", found=src)
        return (Result(dst.shape, dst.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis = call.attrs["dim"] % call.arg(0).rank
        dims = domain(
            [(f"i{n}", e, False) for n, e in enumerate(shapes[0])]
            + [("j", call.arg(1).shape[0], True)]
        )
        *here, j = (d.var.expr() for d in dims)
        at = tuple(here)
        return AccessRelation(dims, (at, (j,), (*at[:axis], j, *at[axis + 1 :])), (at,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        refuse_partial(f"tf.{call.op}", (None, call.args[1]), call.span)
        return self.partial_values(call)

    def partial_values(self, call: Call) -> tuple[Partial, ...]:
        """Partial axes of ``dst`` and ``src`` that pass through."""
        raise NotImplementedError

    def storage(self, call: Call) -> str:
        """With dst: it is updated where it lies."""
        return call.arg(0).storage
