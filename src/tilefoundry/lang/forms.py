"""What an author's names stand for before they meet the program: types, meshes,
operations and instructions as written. Python evaluates them at import without effect."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from tilefoundry.ir.expr import Dim, Expr, OpenDim
from tilefoundry.ir.mesh import Mesh


class _Subscripted(type):
    __iter__ = None  # subscripts make types, so Python must not take the class for a sequence

    def __getitem__(cls, items: Any) -> Any:
        return cls(items if isinstance(items, tuple) else (items,))  # type: ignore[call-arg]


@dataclass(frozen=True, eq=False)
class Tensor(metaclass=_Subscripted):
    """``Tensor[shape, dtype(, layout)(, storage)]``."""

    items: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ConstTensor(Tensor):
    """A weight: bound by the parameter's name."""


@dataclass(frozen=True, eq=False)
class MeshForm:
    """``Mesh(levels or a mesh, layout=..., names=...)`` as written."""

    source: Any
    layout: Any
    names: tuple[str, ...] = ()

    def __init__(self, source: Any, layout: Any = None, names: Any = ()) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "names", (names,) if isinstance(names, str) else tuple(names))


@dataclass(frozen=True, eq=False)
class MeshBinding:
    """A mesh that a scope bound, or a slice of one. ``spelled`` is how it was written."""

    mesh: Mesh
    spelled: str

    def __repr__(self) -> str:
        return f"the mesh {self.spelled}"


@dataclass(frozen=True)
class OpRef:
    """``tf.NAME``."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from tilefoundry.diag import refuse

        refuse("op-outside-func", name=f"tf.{self.name}")

    def __repr__(self) -> str:
        return f"tf.{self.name}"


class Ops:
    """The name ``tf``: its attributes are operations, resolved when a program is parsed."""

    def __getattr__(self, name: str) -> OpRef:
        if name.startswith("__"):
            raise AttributeError(name)
        return OpRef(name)

    def __repr__(self) -> str:
        return "tf"


@dataclass(frozen=True)
class Instr:
    """An instruction with its parameters: ``T.cuda.sm90.Wgmma(n=256, dtype="bf16")``."""

    path: str
    args: tuple[Any, ...] = ()
    params: tuple[tuple[str, Any], ...] = ()

    def get(self, name: str, default: Any = None) -> Any:
        return dict(self.params).get(name, default)

    def __repr__(self) -> str:
        words = [spell(a) for a in self.args] + [f"{k}={spell(v)}" for k, v in self.params]
        return f"T.{self.path}({', '.join(words)})"


def spell(value: Any) -> str:
    """A parameter's value in source form."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        body = ", ".join(spell(v) for v in value)
        return f"({body},)" if len(value) == 1 else f"({body})"
    return repr(value)


@dataclass(frozen=True)
class InstrPath:
    """``T.a.b``: an instruction when called, a parameter's value (``Form.SS``) when not."""

    path: str = ""

    def __getattr__(self, name: str) -> InstrPath:
        if name.startswith("__"):
            raise AttributeError(name)
        return InstrPath(f"{self.path}.{name}" if self.path else name)

    def __call__(self, *args: Any, **kwargs: Any) -> Instr:
        return Instr(self.path, args, tuple(kwargs.items()))

    def __repr__(self) -> str:
        return f"T.{self.path}" if self.path else "T"


@dataclass(frozen=True)
class Window:
    """The variable of ``for k in tf.tile(extent, step)``: a range of an axis."""

    start: Dim
    size: Any

    def __repr__(self) -> str:
        return f"window {self.start} of size {self.size}"


class ReduceKind(enum.Enum):
    """Combination of a reduction."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    ABS_MAX = "abs_max"
    PROD = "prod"
    ANY = "any"
    ALL = "all"

    def __repr__(self) -> str:
        return str(self)


class UnaryKind(enum.Enum):
    """Operation of ``tf.unary`` and ``T.unary``."""

    NEG = "neg"
    ABS = "abs"
    RSQRT = "rsqrt"
    SQRT = "sqrt"
    SQUARE = "square"
    EXP = "exp"
    EXP2 = "exp2"
    LOG = "log"
    LOG2 = "log2"
    CEIL = "ceil"
    FLOOR = "floor"
    ROUND = "round"
    LOGICAL_NOT = "logical_not"
    RELU = "relu"
    SOFTPLUS = "softplus"
    SIGMOID = "sigmoid"
    SILU = "silu"
    TANH = "tanh"
    ERF = "erf"
    SIN = "sin"
    COS = "cos"

    def __repr__(self) -> str:
        return str(self)


class BinaryKind(enum.Enum):
    """Operation of ``tf.binary`` and ``T.binary``."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOOR_DIV = "floor_div"
    MOD = "mod"
    MIN = "minimum"
    MAX = "maximum"
    CMP_EQ = "cmp_eq"
    CMP_NE = "cmp_ne"
    CMP_LT = "cmp_lt"
    CMP_LE = "cmp_le"
    CMP_GT = "cmp_gt"
    CMP_GE = "cmp_ge"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    POW = "pow"

    def __repr__(self) -> str:
        return str(self)


def open_dim(name: str, lo: int = 0, hi: int | None = None) -> Expr:
    """``DimVar(name, lo, hi)``: an open extent with inclusive bounds; refuses others."""
    ends = (lo,) if hi is None else (lo, hi)
    whole = all(type(end) is int for end in ends)
    if not isinstance(name, str) or not name.isidentifier() or not whole or not 0 <= lo <= ends[-1]:
        from tilefoundry.diag import refuse

        refuse("dim-form", None, found=f"DimVar({name!r}, {lo!r}, {hi!r})")
    return OpenDim(name, lo, float("inf") if hi is None else hi).expr()


@dataclass(frozen=True)
class Dropped:
    """A name whose value did not survive (a loop's end); reading it is refused with ``fix``, in
    which ``{name}`` stands for the name."""

    why: str
    fix: str
