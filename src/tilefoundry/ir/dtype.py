"""Element types: name, width in bits, kind, and torch's promotion among them."""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.diag import Span, refuse


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. ``kind`` is ``float``, ``int``, ``uint`` or ``bool``."""

    name: str
    bits: int
    kind: str
    torch: str | None
    """Name of the torch dtype that holds it, None where torch has none."""

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_narrow(self) -> bool:
        """A float of 8 bits or fewer: stored, converted and multiplied, not computed in."""
        return self.is_float and self.bits <= 8


_ALL = (
    DType("f64", 64, "float", "float64"),
    DType("f32", 32, "float", "float32"),
    DType("f16", 16, "float", "float16"),
    DType("bf16", 16, "float", "bfloat16"),
    DType("fp8e4m3", 8, "float", "float8_e4m3fn"),
    DType("fp8e5m2", 8, "float", "float8_e5m2"),
    DType("f8e8m0", 8, "float", "float8_e8m0fnu"),
    DType("f4e2m1", 4, "float", None),
    DType("i64", 64, "int", "int64"),
    DType("i32", 32, "int", "int32"),
    DType("i16", 16, "int", "int16"),
    DType("i8", 8, "int", "int8"),
    DType("u8", 8, "uint", "uint8"),
    DType("bool", 8, "bool", "bool"),
)
DTYPES: dict[str, DType] = {d.name: d for d in _ALL}
LARGEST = {"i8": 127.0, "fp8e4m3": 448.0, "fp8e5m2": 57344.0, "f4e2m1": 6.0}
"""The largest finite value of what numbers are scaled to (OCP 8-bit floating point and
microscaling specifications)."""
F64, F32, F16, BF16 = (DTYPES[n] for n in ("f64", "f32", "f16", "bf16"))
I64, I32, U8, BOOL = (DTYPES[n] for n in ("i64", "i32", "u8", "bool"))


def dtype_of(name: object, span: Span | None = None) -> DType:
    """The dtype called ``name``; refuses an unknown name and lists the known ones."""
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    refuse("dtype-unknown", span, name=repr(name), known=" ".join(DTYPES))


def promote(a: DType, b: DType) -> DType | None:
    """torch's result type of two tensors; None where torch has no promotion."""
    if a is b:
        return a
    if a.is_narrow or b.is_narrow:
        return None
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            if a.bits == b.bits:  # f16 with bf16
                return F32
            return a if a.bits > b.bits else b
        return a if a.is_float else b
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed = a if a.kind == "int" else b
    # u8 with i8 needs i16; every wider signed type already holds u8
    return DTYPES["i16"] if signed.bits == 8 else signed
