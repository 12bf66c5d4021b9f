"""The contract language: patterns with variables, predicates as data.

Variables are symbols of index expressions, so a pattern's shapes and strides are ordinary
integer arithmetic and are evaluated under a binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, Expr, Sym, evaluate, render
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.sums import Sums

Env: TypeAlias = Mapping[str, Any]
"""What is bound: parameters by name, and the variables solved so far."""


@dataclass(frozen=True, eq=False)
class Unknown(Sym):
    """A variable of a pattern; equal names are the same variable."""

    kind = "unknown"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def key(self) -> tuple[str, str, int]:  # type: ignore[override]
        return ("unknown", self.name, 0)


def Variable(name: str) -> Expr:
    """A pattern variable as an index expression."""
    return Unknown(name, 0).expr()


def value_of(x: Dim, env: Env) -> int:
    """The integer that ``x`` is under ``env``; KeyError for an unbound variable."""
    if isinstance(x, int):
        return x
    from tilefoundry.ir.expr import symbols

    return evaluate(x, {s: int(env[s.name]) for s in symbols(x)})


# Predicates


@dataclass(frozen=True)
class Between:
    """``lo <= name <= hi``."""

    lo: int
    name: str
    hi: int

    def text(self) -> str:
        return f"{self.lo} <= {self.name} <= {self.hi}"

    def holds(self, env: Env) -> bool:
        return self.lo <= env[self.name] <= self.hi

    def nearest(self, env: Env) -> str:
        return str(min(max(env[self.name], self.lo), self.hi))


@dataclass(frozen=True)
class MultipleOf:
    """``name % unit == 0``."""

    name: str
    unit: int

    def text(self) -> str:
        return f"{self.name} % {self.unit} == 0"

    def holds(self, env: Env) -> bool:
        return env[self.name] % self.unit == 0

    def nearest(self, env: Env) -> str:
        below = env[self.name] // self.unit * self.unit
        return f"{below} or {below + self.unit}" if below else str(self.unit)


@dataclass(frozen=True)
class OneOf:
    """``name in {...}``."""

    name: str
    values: tuple[str, ...]

    def text(self) -> str:
        return f"{self.name} in {{{', '.join(self.values)}}}"

    def holds(self, env: Env) -> bool:
        return env[self.name] in self.values

    def nearest(self, env: Env) -> str:
        return " or ".join(self.values)


Predicate: TypeAlias = Between | MultipleOf | OneOf


# Parameters


@dataclass(frozen=True)
class Case:
    """The domain of a parameter while other parameters have the values of ``when``."""

    when: tuple[tuple[str, tuple[str, ...]], ...]
    values: tuple[str, ...]

    def applies(self, env: Env) -> bool:
        return all(env.get(name) in allowed for name, allowed in self.when)


@dataclass(frozen=True)
class ParamDef:
    """One parameter: predicates on any value, or a domain that depends on others."""

    name: str
    predicates: tuple[Predicate, ...] = ()
    cases: tuple[Case, ...] = ()
    default: str | None = None

    def domain(self, env: Env) -> tuple[str, ...]:
        """The values allowed under ``env`` (for parameters with cases or one-of)."""
        for case in self.cases:
            if case.applies(env):
                return case.values
        return next((p.values for p in self.predicates if isinstance(p, OneOf)), ())


# Execution mesh


@dataclass(frozen=True)
class MeshPattern:
    """Units of one level that issue together: ``shape : strides + p0``; no axis at all for
    a single unit.

    A larger mesh matches with group axes in front of these; ``align`` is what the first
    unit of each group must be a multiple of.
    """

    level: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align: int = 1

    def text(self, groups: bool = False) -> str:
        """As a layout; with ``groups`` the axes that a larger mesh may have in front."""
        lead, steps = ("*g, ", "*gs, ") if groups else ("", "")
        shape = ", ".join(map(str, self.shape or (1,)))
        strides = ", ".join(map(str, self.strides or (0,)))
        layout = f"Layout((({lead}{shape}),), (({steps}{strides}),))"
        return f"Mesh(('{self.level}',), ComposedLayout(None, p0, {layout}))"

    def predicates(self) -> tuple[str, ...]:
        return (
            "each top-level mode has no backward step",
            "each top-level mode reaches each of its own slots exactly once",
            f"p0 % {self.align} == 0",
        )

    @property
    def units(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count


# Operands


@dataclass(frozen=True)
class FragmentPattern:
    """Registers: flat mode extents and nominal strides (the first ``rows`` modes make up the
    first logical axis), the atom-mesh axis bound to each mode (None: local), and the order of
    local modes in the instruction's registers, fastest first (mode indices)."""

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    axes: tuple[int | None, ...]
    registers: tuple[int, ...]
    rows: int

    def element(self, unit: tuple[int, ...], register: int, env: Env) -> tuple[int, int]:
        """The tile coordinate that register ``register`` of the unit at ``unit`` holds."""
        sizes = [value_of(x, env) for x in self.shape]
        at = [0 if a is None else unit[a] for a in self.axes]
        for mode in self.registers:
            at[mode], register = register % sizes[mode], register // sizes[mode]
        parts = (range(self.rows), range(self.rows, len(sizes)))
        crd: list[int] = []
        for modes in parts:
            index = 0
            for mode in modes:
                index = index * sizes[mode] + at[mode]
            crd.append(index)
        return crd[0], crd[1]

    def count(self, env: Env) -> int:
        """Elements that one unit holds."""
        held = 1
        for mode in self.registers:
            held *= value_of(self.shape[mode], env)
        return held

    def text(self, mesh: str) -> str:
        modes = ", ".join(_dim(x) for x in self.shape)
        steps = ", ".join(_dim(x) for x in self.strides)
        bound = sorted((a, n) for n, a in enumerate(self.axes) if a is not None)
        attrs = ", ".join(f"S({n})" for _, n in bound)
        return f"ShardLayout(Layout(({modes}), ({steps})), ({attrs}), {mesh})"


@dataclass(frozen=True)
class SharedPattern:
    """Memory, or a register file that instructions address: nested modes per logical axis
    with strides in elements; ``spans`` the swizzle spans in bytes it is for (16: none);
    ``multiples`` variables whose values must be multiples of an expression; ``block`` what
    the first byte of each atom must be a multiple of; ``why`` what it is for, in words."""

    shape: tuple[tuple[Dim, ...], ...]
    strides: tuple[tuple[Dim, ...], ...]
    spans: tuple[int, ...]
    equal: tuple[tuple[Dim, Dim], ...] = ()
    multiples: tuple[tuple[str, Dim], ...] = ()
    major: str = ""
    block: int = 1
    why: str = ""

    def text(self) -> str:
        shape = ", ".join(_nest(x) for x in self.shape)
        strides = ", ".join(_nest(x) for x in self.strides)
        return f"Layout(({shape}), ({strides}))"


Arrangement: TypeAlias = FragmentPattern | SharedPattern


@dataclass(frozen=True)
class TensorPattern:
    """One operand: shape, dtype (a name, or a parameter's name), storage, arrangements."""

    shape: tuple[Dim, ...]
    dtype: str
    storage: str
    arrangements: tuple[Arrangement, ...]
    align: int = 1
    """Bytes that the operand's base address must be a multiple of."""

    def dtype_under(self, env: Env) -> str:
        return str(env.get(self.dtype, self.dtype))


@dataclass(frozen=True)
class SwitchPattern:
    """An operand whose pattern depends on a parameter."""

    parameter: str
    patterns: tuple[tuple[str, OperandPattern], ...]

    def under(self, env: Env) -> TensorPattern:
        """The pattern for the parameter's value; switches may nest."""
        found = dict(self.patterns)[env[self.parameter]]
        return found.under(env) if isinstance(found, SwitchPattern) else found


OperandPattern: TypeAlias = TensorPattern | SwitchPattern


@dataclass(frozen=True)
class MmaAtom:
    """A matrix instruction ``C[m, n] += A[m, k] · B[k, n]`` of fixed atom shape.

    ``completion`` and ``proxy`` say how its effects become visible: ``none`` or ``wgmma``
    group; ``generic`` or ``async``. ``sums``: how a unit adds the products of a sum that it holds,
    each unit for itself; None where units exchange operands: in f32, in any order.
    """

    path: str
    capability: str
    execution_mesh: MeshPattern
    A: OperandPattern
    B: OperandPattern
    C: OperandPattern
    parameters: tuple[ParamDef, ...]
    completion: str = "none"
    proxy: str = "generic"
    source: str = ""
    meaning = "mma"
    rank: int = 0
    """Place in reports: smaller first."""
    lets: tuple[tuple[str, Dim], ...] = ()
    """Variables that follow from the operands' width in ``bits``."""
    sums: Sums | None = None
    resources: tuple[str, ...] = ()
    """Registers and tiles that its operands take from, in words."""
    c: CText | None = None
    """How C says it, where one call does."""

    def completed(self, env: Env, bits: int) -> dict[str, Any]:
        """The binding with what follows from it."""
        out = {**env, "bits": bits}
        for name, value in self.lets:
            out[name] = value_of(value, out)
        return out

    def operand(self, name: str, env: Env) -> TensorPattern:
        """The pattern of operand ``A``, ``B`` or ``C`` under ``env``."""
        found: OperandPattern = getattr(self, name)
        return found.under(env) if isinstance(found, SwitchPattern) else found

    def shape(self, env: Env) -> tuple[int, int, int]:
        """The atom's domain (m, n, k)."""
        a, b = self.operand("A", env), self.operand("B", env)
        m, k = (value_of(x, env) for x in a.shape)
        return m, value_of(b.shape[1], env), k


def _dim(x: Dim) -> str:
    return render(x)


def _nest(x: Sequence[Dim]) -> str:
    if len(x) == 1:
        return _dim(x[0])
    return f"({', '.join(_dim(v) for v in x)})"


def dtype_name(value: Any) -> str:
    """A dtype parameter's name."""
    return value.name if isinstance(value, DType) else str(value)
