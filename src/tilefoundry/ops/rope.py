"""rope: y[d] = x[d] · cos[p, d] - x[d + D/2] · sin[p, d] for d < D/2, else
y[d] = x[d] · cos[p, d] + x[d - D/2] · sin[p, d], for x = q and k, p = pos_ids.

q: [..., H, D], k: [..., G, D] with G dividing H, pos_ids: [...] (integers); caches:
[positions, D], or [positions, D/2] used for both halves. Computed in float32 for
16-bit dtypes (float64 for f64) and rounded once to the dtype of q, of k.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import WHOLE, AccessRelation, Coord, Indirect, domain
from tilefoundry.ir.expr import Dim, product
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops._axes import statistics
from tilefoundry.ops._elementwise import demand
from tilefoundry.ops._movement import checked_index
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.propagate import distribute
from tilefoundry.ops.signature import Operand


def _example(dtype: str, cache: str, width: int) -> Example:
    return Example(
        (
            ((2, 2, 4, 4), dtype),
            ((2, 2, 2, 4), dtype),
            ((6, width), cache),
            ((6, width), cache),
            ((2, 2), "i64"),
        ),
        values=("any", "any", "any", "any", "index"),
    )


class Rope(Op):
    name = "rope"
    params = tuple(Operand(n) for n in ("q", "k", "cos_cache", "sin_cache", "pos_ids"))
    examples = (
        _example("f32", "f32", 4),
        _example("bf16", "f32", 2),
        _example("f16", "f16", 4),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        q, k, cos, sin, pos = (call.arg(n) for n in range(5))
        for x in (q, k, cos, sin):
            demand(call, x.dtype, ("float",))
        demand(call, pos.dtype, ("int",))
        problem = ""
        if q.rank < 2 or q.rank != k.rank or q.shape[:-2] != k.shape[:-2]:
            problem = "q and k differ before the axis of heads"
        elif q.shape[-1] != k.shape[-1] or q.shape[-1] % 2 != 0:
            problem = "q and k need one head extent, an even one"
        elif q.shape[-2] % k.shape[-2] != 0:
            problem = "the heads of k do not divide those of q"
        elif pos.shape != q.shape[:-2]:
            problem = "pos_ids needs the axes of q before its heads"
        elif cos.rank != 2 or cos.shape != sin.shape:
            problem = "the caches differ, or are not [positions, D]"
        elif cos.shape[1] not in (q.shape[-1], q.shape[-1] // 2):
            problem = "the caches are neither D nor D/2 wide"
        if problem:
            call.refuse("rope-shapes", problem=problem, q=q, k=k, cos=cos, sin=sin, pos=pos)
        return Result(q.shape, q.dtype), Result(k.shape, k.dtype)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        q, k = shapes
        group = q[-2] // k[-2]
        dims = domain((f"i{n}", e, False) for n, e in enumerate(q))
        here = [d.var.expr() for d in dims]
        return self._reads(call, dims, here[-2], here[-2] // group)

    def _reads(self, call: Call, dims: Any, head: Coord, kv_head: Coord) -> AccessRelation:
        lead: tuple[Coord, ...] = tuple(d.var.expr() for d in dims[:-2])
        d = dims[-1].var.expr()
        row: tuple[Coord, ...] = (Indirect(4), WHOLE)
        reads = ((*lead, head, WHOLE), (*lead, kv_head, WHOLE), row, row, lead)
        return AccessRelation(dims, reads, ((*lead, head, d), (*lead, kv_head, d)))

    def infer(self, call: Call) -> Type:
        """q and k are distributed each on its own: their heads may be split unlike."""
        results = self.results(call)
        self.partial(call)
        made: list[TensorType] = []
        for n, result in enumerate(results):
            alone = tuple(a if m in (n, 2, 3, 4) else None for m, a in enumerate(call.args))
            dims = domain((f"i{m}", e, False) for m, e in enumerate(result.shape))
            head = dims[-2].var.expr()
            both = self._reads(call, dims, head, head)
            one = AccessRelation(dims, both.operands, both.results[n : n + 1])
            layouts = distribute("tf.rope", one, alone, (result.shape,), (), call.span)
            storage = call.arg(n).storage
            made.append(TensorType(result.shape, result.dtype, layouts[0], storage))
        return TupleType(tuple(made))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        q, k, cos, sin, pos = args
        at = checked_index("rope", pos, cos.shape[0], 0)
        return _rotate(q, cos[at], sin[at]), _rotate(k, cos[at], sin[at])

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        total = Work()
        for n, shape in enumerate(shapes):
            # two multiplications and an addition
            count: Dim = 3 * product(shape)
            total = total + work(statistics(call.arg(n).dtype), float=count)
        return total


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    half = x.shape[-1] // 2
    if cos.shape[-1] == half:
        cos, sin = (torch.cat((t, t), -1) for t in (cos, sin))
    cos, sin = (t.to(wide).unsqueeze(-2) for t in (cos, sin))
    y = x.to(wide)
    turned = torch.cat((-y[..., half:], y[..., :half]), -1)
    return (y * cos + turned * sin).to(x.dtype)


OP = Rope()
