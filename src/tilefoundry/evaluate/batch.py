"""One operation for many units at once, on operands stacked along a leading axis."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tilefoundry.evaluate.stack import row
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops import find
from tilefoundry.ops._by_kind import ByKind
from tilefoundry.ops._elementwise import Elementwise
from tilefoundry.ops.base import Bits, Op
from tilefoundry.ops.signature import Operand

LEADING = {"cast", "clamp", "full_like", "gelu", "rms_norm"}
"""Operations that treat every leading axis alike, beyond the elementwise ones."""
ALONE = {"cache_update", "gather", "index_add", "index_copy", "index_select", "rope", "scatter_add"}
"""Operations that look at their values, to refuse an index out of range: unit by unit."""
ALONE |= {"conv1d", "conv2d"}
"""torch.vmap adds a bias along the wrong axis where one stride stands for both axes."""


LARGE = 1 << 15
"""Elements from which torch cuts the sum of a single result into one part for each thread."""


def bits_of(op: Op, attrs: Mapping[str, Any]) -> Bits:
    """What the bits of an operation's results depend on."""
    if op.name == "schedule":
        kind, inner = attrs["meaning"]
        if kind in ("copy", "mma"):
            return Bits.WHOLE if kind == "mma" else Bits.ELEMENTS
        meant = find(kind)
        assert meant is not None
        return bits_of(meant, inner)
    if isinstance(op, ByKind):
        return op.named(attrs).bits
    return op.bits


def arranged(value: Any) -> Any:
    """An operand row by row in memory: torch adds in an order that depends on strides."""
    return value.contiguous() if hasattr(value, "contiguous") else value


def together(bits: Bits, args: Sequence[Any], held: Sequence[bool], device: str) -> bool:
    """Trips evaluated at once have the bits of each alone."""
    if bits is not Bits.ROWS:
        return bits is Bits.ELEMENTS
    if device != "cpu":
        return False  # a device adds in an order that depends on how many sums there are
    sizes = [prod(a.shape[1:] if h else a.shape) for a, h in zip(args, held, strict=True)
             if hasattr(a, "shape")]  # fmt: skip
    return max(sizes, default=0) < LARGE


def batched(
    op: Op, args: Sequence[Any], held: Sequence[bool], attrs: Mapping[str, Any], type: Type, n: int
) -> Any:
    """The values of ``n`` units as one stack: ``args`` have a row per unit where ``held``.

    ``attrs`` and ``type`` are those of every unit. Sums of a contraction may be associated
    differently than for one unit alone; everything else has the same bits.
    """
    if op.name == "schedule":
        return _scheduled(op, args, held, attrs, type, n)
    if op.name == "local":
        return _local(args[0], held[0], attrs["parts"], type, n)
    if not any(held):
        return _repeated(op.evaluate(list(args), attrs, type), type, n)
    if isinstance(op, (Elementwise, ByKind)) or op.name in LEADING:
        return op.evaluate(_aligned(args, held), attrs, type)
    if op.name == "matmul" and min(_ranks(args, held)) > 1:
        return op.evaluate(_aligned(args, held), attrs, type)
    if op.name == "reshape":
        assert isinstance(type, TensorType)
        return args[0].reshape((n, *type.shape))
    if op.name == "transpose":
        rank = args[0].dim() - 1
        return args[0].permute((0, *(p % rank + 1 for p in attrs["perm"])))
    return _mapped(op, args, held, attrs, type, n)


def _ranks(args: Sequence[Any], held: Sequence[bool]) -> list[int]:
    return [a.dim() - h for a, h in zip(args, held, strict=True) if a is not None]


def _aligned(args: Sequence[Any], held: Sequence[bool]) -> list[Any]:
    """Operands whose unit's axes are counted from the back alike: ones after the first axis."""
    rank = max(_ranks(args, held))
    out = list(args)
    for n, (a, h) in enumerate(zip(args, held, strict=True)):
        if h and a.dim() <= rank:
            ones = (1,) * (rank + 1 - a.dim())
            out[n] = a.reshape(a.shape[0], *ones, *a.shape[1:])
    return out


def _repeated(value: Any, type: Type, n: int) -> Any:
    """A value that is the same for all units, as a row of each."""
    if isinstance(type, TupleType):
        return tuple(_repeated(v, t, n) for v, t in zip(value, type.items, strict=True))
    return value.expand((n, *value.shape))


def _scheduled(
    op: Op, args: Sequence[Any], held: Sequence[bool], attrs: Mapping[str, Any], type: Type, n: int
) -> Any:
    """An instruction: what it means, on the operands that it reads."""
    kind, inner = attrs["meaning"]
    if kind == "copy":
        return args[0] if held[0] else _repeated(args[0], type, n)
    if kind == "mma":
        value = op.evaluate(_aligned(args, held), attrs, type)
        return value if any(held) else _repeated(value, type, n)
    meant = find(kind)
    assert meant is not None
    arity = sum(1 for p in meant.params if isinstance(p, Operand) and not p.optional)
    return batched(meant, args[:arity], held[:arity], inner, type, n)


def _local(x: Any, held: bool, parts: Any, type: Type, n: int) -> Any:
    """Every unit's part: picks are an array of coordinates where a mode is split."""
    import torch

    assert isinstance(type, TensorType)
    modes = [e for extents, _ in parts for e in extents]
    picks = [p for _, chosen in parts for p in chosen]
    split = [m for m, p in enumerate(picks) if p is not None]
    x = x if held else x.unsqueeze(0)
    x = x.reshape((x.shape[0], *modes)) if modes else x
    rest = [m for m in range(len(picks)) if picks[m] is None]
    x = x.permute((0, *(m + 1 for m in (*split, *rest)))) if modes else x
    lane = (
        torch.arange(n, device=x.device) if held else torch.zeros(n, dtype=torch.int64).to(x.device)
    )
    index = [torch.from_numpy(picks[m]).to(x.device) for m in split]
    return x[(lane, *index)].reshape((n, *type.shape))


def _mapped(
    op: Op, args: Sequence[Any], held: Sequence[bool], attrs: Mapping[str, Any], type: Type, n: int
) -> Any:
    """torch.vmap, or one unit after the other where the operation looks at its values."""
    import torch

    def one(*given: Any) -> Any:
        rest = iter(given)
        return op.evaluate([None if a is None else next(rest) for a in args], attrs, type)

    if op.name not in ALONE:
        present = [a for a in args if a is not None]
        dims = tuple(0 if h else None for a, h in zip(args, held, strict=True) if a is not None)
        try:
            with warnings.catch_warnings():
                # torch warns where vmap has no rule of its own and goes one by one
                warnings.simplefilter("error")
                return torch.vmap(one, in_dims=dims)(*present)
        except (RuntimeError, UserWarning):
            pass  # a form of the operation that vmap can't carry
    return alone(op, args, held, attrs, type, n)


def alone(
    op: Op, args: Sequence[Any], held: Sequence[bool], attrs: Mapping[str, Any], type: Type, n: int
) -> Any:
    """The values of ``n`` units as lists of rows, each evaluated by itself."""
    rows = [
        op.evaluate([row(a, u) if h else a for a, h in zip(args, held, strict=True)], attrs, type)
        for u in range(n)
    ]
    return rows if isinstance(type, TensorType) else tuple(list(v) for v in zip(*rows, strict=True))
