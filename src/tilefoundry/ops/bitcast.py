"""bitcast: out[layout⁻¹(a)] = the bits of x at storage offset a; nothing moves.

x lies row-major; ``layout`` names new coordinates, and so the new shape, for the same
bytes. ``Tensor[shape, dtype, layout]`` in its place also reads them as another dtype.
Each unit must keep the bytes it holds. Exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import WHOLE, AccessRelation, Coord, domain
from tilefoundry.ir.expr import Dim, product
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import ShardLayout, flat
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.signature import Attr, Operand


def _target(value: object, op: str, name: str, span: Span | None) -> TensorType | ShardLayout:
    return value if isinstance(value, TensorType) else layout_from(value, span)


def _row_major(extents: Shape) -> Shape:
    steps: list[Dim] = []
    step: Dim = 1
    for extent in reversed(extents):
        steps.insert(0, step)
        step = step * extent
    return tuple(steps)


def _strides(layout: ShardLayout) -> Shape:
    return _row_major(layout.modes) if layout.strides is None else layout.strides


def _dense(layout: ShardLayout) -> bool:
    """The layout reaches each offset from 0 to its size exactly once, unswizzled."""
    if layout.swizzle is not None or layout.offset:
        return False
    if layout.strides is None:
        return True
    pairs = [(s, m) for m, s in zip(layout.modes, layout.strides, strict=True) if m != 1]
    if not all(isinstance(s, int) and isinstance(m, int) for s, m in pairs):
        return False
    step: Dim = 1
    for stride, extent in sorted(pairs, key=lambda p: int(p[0])):  # type: ignore[arg-type]
        if stride != step:
            return False
        step = step * extent
    return True


def _owners(layout: ShardLayout | None, bits: int) -> frozenset[tuple[Axis, Dim, Dim]]:
    """Which bits belong to which unit: axis coordinate = (bit offset // inner) % extent."""
    if layout is None:
        return frozenset()
    modes = zip(layout.axes, _strides(layout), layout.modes, strict=True)
    return frozenset((a, s * bits, m) for a, s, m in modes if a is not None and m != 1)


class Bitcast(Op):
    name = "bitcast"
    params = (Operand("x"), Attr("layout", _target))
    examples = (
        Example((((4, 6), "f32"),), {"layout": (24,)}),
        Example((((4, 6), "bf16"),), {"layout": ((6, 4), (1, 6))}),
        Example((((4, 6), "i32"),), {"layout": ((2, 3, 4), (12, 1, 3))}),
        Example((((4, 6), "bool"),), {"layout": (2, 12)}),
    )

    def _made(self, call: Call) -> TensorType:
        target, x = call.attrs["layout"], call.arg(0)
        if isinstance(target, TensorType):
            return target.with_(storage=x.storage)
        shape = tuple(product(flat(top)) for top in target.shape)
        return TensorType(shape, x.dtype, None if target.is_plain else target, x.storage)

    def results(self, call: Call) -> tuple[Result, ...]:
        x, made = call.arg(0), self._made(call)
        if x.bits() != made.bits():
            call.refuse("bitcast-size", source=x, target=made, a=x.bits(), b=made.bits())
        if x.dtype != made.dtype and "bool" in (x.dtype.kind, made.dtype.kind):
            call.refuse("op-dtype", dtype="bool", wants="float int uint")
        if x.layout is not None:
            rows = all(
                s == r or m == 1
                for s, r, m in zip(
                    _strides(x.layout), _row_major(x.layout.modes), x.layout.modes, strict=True
                )
            )
            if not rows or not _dense(x.layout):
                call.refuse("bitcast-order", which="x", wants="row-major", layout=x.layout.text())
        if made.layout is not None and not _dense(made.layout):
            wants = f"one offset for each of {made.size} elements"
            call.refuse("bitcast-order", which="layout", wants=wants, layout=made.layout.text())
        if _owners(x.layout, x.dtype.bits) != _owners(made.layout, made.dtype.bits):
            call.refuse("bitcast-moves", source=x, target=made)
        return (Result(made.shape, made.dtype),)

    def infer(self, call: Call) -> Type:
        self.results(call)
        self.partial(call)
        return self._made(call)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        x, made = call.arg(0), self._made(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here: tuple[Coord, ...] = tuple(d.var.expr() for d in dims)
        if x.dtype.bits != made.dtype.bits:
            return AccessRelation(dims, ((WHOLE,) * x.rank,), (here,))
        offset: Dim = 0
        layout = made.layout or ShardLayout(made.shape, axes=(None,) * made.rank)
        strides = _strides(layout)
        for d, group in zip(dims, layout.groups(made.shape), strict=True):
            inner: Dim = 1
            for mode in reversed(group):
                digit = (d.var.expr() // inner) % layout.modes[mode]
                offset = offset + digit * strides[mode]
                inner = inner * layout.modes[mode]
        reads = tuple(
            (offset // step) % extent
            for step, extent in zip(_row_major(x.shape), x.shape, strict=True)
        )
        return AccessRelation(dims, (reads,), (here,))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        (x,) = args
        assert isinstance(result, TensorType)
        shape: Any = result.shape
        bits = x.contiguous().reshape(-1).view(torch_dtype(result.dtype))
        if result.layout is None or result.layout.strides is None:
            return bits.reshape(shape)
        modes: Any = result.layout.modes
        return bits.as_strided(modes, result.layout.strides).reshape(shape)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Bitcast()
