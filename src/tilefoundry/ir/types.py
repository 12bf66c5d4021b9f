"""Types of values: tensors with shape, dtype, layout and storage; tuples of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, product
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import Digit, ShardLayout, shape_text

IMMEDIATE = "imm"
"""Storage of scalars written in the program: they live in the instruction."""


@dataclass(frozen=True)
class TensorType:
    """A tensor: logical shape, element type, who holds what (None: the whole, in the
    storage's default layout), and the storage it lives in."""

    shape: tuple[Dim, ...]
    dtype: DType
    layout: ShardLayout | None = None
    storage: str = "gmem"

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.dtype, self.layout, self.storage))

    def __hash__(self) -> int:
        return self._hash

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Elements of the whole tensor."""
        return product(self.shape)

    @cached_property
    def local_shape(self) -> tuple[Dim, ...]:
        """Shape of the part that one unit holds."""
        return self.shape if self.layout is None else self.layout.local(self.shape)

    @cached_property
    def digits(self) -> tuple[Digit, ...]:
        """The splits as arithmetic on logical axes."""
        return () if self.layout is None else self.layout.digits(self.shape)

    @property
    def partial(self) -> tuple[tuple[Axis, str], ...]:
        return () if self.layout is None else self.layout.partial

    def bits(self, shape: tuple[Dim, ...] | None = None) -> Dim:
        return product(self.shape if shape is None else shape) * self.dtype.bits

    def says_as(self, other: TensorType) -> bool:
        """Equal, but for splits over axes of one unit, which say nothing."""
        return self == other or self._without_single() == other._without_single()

    def _without_single(self) -> object:
        layout = self.layout
        if layout is None:
            return self.shape, self.dtype, self.storage, (), frozenset[object](), None, None, 0
        digits = tuple(d for d in self.digits if d.axis.extent != 1)
        held = frozenset(p for p in layout.partial if p[0].extent != 1)
        steps = None
        if layout.strides is not None:
            modes = zip(layout.modes, layout.strides, strict=True)
            steps = tuple((m, s) for m, s in modes if m != 1)
        return (self.shape, self.dtype, self.storage, digits, held, steps, layout.swizzle,
                layout.offset)  # fmt: skip

    def nbytes(self, local: bool = False) -> Dim:
        """Bytes of the whole (or of one unit's part), rounded up to whole bytes."""
        bits = self.bits(self.local_shape if local else None)
        return -((-bits) // 8)

    def with_(self, **changes: object) -> TensorType:
        return replace(self, **changes)  # type: ignore[arg-type]

    def text(self) -> str:
        """As an author writes it."""
        parts = [shape_text(self.shape), f'"{self.dtype}"']
        if self.layout is not None and not self.layout.is_plain:
            parts.append(self.layout.text())
        if self.storage != "gmem":
            parts.append(f'"{self.storage}"')
        return f"Tensor[{', '.join(parts)}]"

    def __repr__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class TupleType:
    """Several results of one operation or function."""

    items: tuple[TensorType, ...]

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.items))})"


Type: TypeAlias = TensorType | TupleType
