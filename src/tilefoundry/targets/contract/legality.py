"""The one legality routine: a use of a matrix instruction against its contract.

Clauses are judged from the outside in: mesh, parameters, element types, storage, tile shape,
arrangement of each operand. The answer is a :class:`Fit` or the deepest clause that is not
met, with what was expected, what was found, and what would meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilefoundry.ir.expr import symbols
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import compact_strides
from tilefoundry.targets.contract.pattern import (
    Env,
    FragmentPattern,
    MmaAtom,
    SharedPattern,
    TensorPattern,
    dtype_name,
    value_of,
)
from tilefoundry.targets.contract.place import Place, Window, panels, place

SPANS: Mapping[tuple[int, int, int] | None, int] = {
    None: 16,
    (1, 4, 3): 32,
    (2, 4, 3): 64,
    (3, 4, 3): 128,
}
"""Swizzle to span in bytes (PTX ISA, matrix descriptor swizzling modes)."""

CLAUSES = ("mesh", "parameter", "dtype", "storage", "shape", "A", "B", "C")


@dataclass(frozen=True)
class Unmet:
    """The clause that fails, in words and as what would meet it."""

    clause: str
    expected: str
    got: str
    fix: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    """The parameters under which it was judged, where any were bound."""

    @property
    def depth(self) -> int:
        return CLAUSES.index(self.clause)


@dataclass(frozen=True)
class Groups:
    """How a mesh meets an execution mesh: atom axes, and the group axes in front."""

    atom: tuple[Axis, ...]
    groups: tuple[Axis, ...]
    base: int


@dataclass(frozen=True)
class Fit:
    """A legal use: parameters, repeats over (m, n, k) = bind · serial, and for operands in
    shared memory the solved variables of their arrangement."""

    parameters: Mapping[str, Any]
    atom: tuple[int, int, int]
    bind: tuple[int, int, int]
    serial: tuple[int, int, int]
    groups: Groups
    arrangements: Mapping[str, Mapping[str, int]]

    @property
    def repeat(self) -> tuple[int, int, int]:
        m, n, k = (b * s for b, s in zip(self.bind, self.serial, strict=True))
        return m, n, k


def match_mesh(atom: MmaAtom, mesh: Mesh) -> Groups | Unmet:
    """The units in force as groups of the atom's execution mesh."""
    pattern = atom.execution_mesh
    want = pattern.text(groups=True)
    here = mesh.at(pattern.level)
    tail = here[len(here) - len(pattern.shape) :] if len(here) >= len(pattern.shape) else ()
    fits = tuple(a.extent for a in tail) == pattern.shape
    fits = fits and tuple(a.stride for a in tail) == pattern.strides
    if not tail or not fits:
        return Unmet("mesh", want, str(mesh), arranged(atom, mesh))
    groups = here[: len(here) - len(tail)]
    base = mesh.offset(pattern.level)
    if base % pattern.align or any(g.stride % pattern.align for g in groups):
        got = f"p0 = {base}, group strides {tuple(g.stride for g in groups)}"
        return Unmet("mesh", f"p0 % {pattern.align} == 0, groups alike", got)
    return Groups(tail, groups, base)


def arranged(atom: MmaAtom, mesh: Mesh) -> str:
    """The scope to write so that the units in force execute the atom."""
    pattern = atom.execution_mesh
    shape = (*(("g",) if not mesh.at(pattern.level) else ()), *pattern.shape)
    names = ("group", *(f"u{n}" for n in range(len(pattern.shape))))
    count = mesh.count(pattern.level) if mesh.at(pattern.level) else 0
    strided = pattern.strides != compact_strides(pattern.shape)
    if not count:
        shape = ("g", *pattern.shape)
        steps = (pattern.units, *pattern.strides)
    elif count % pattern.units:
        return f"a {pattern.level} scope whose units are a multiple of {pattern.units}"
    else:
        shape = (count // pattern.units, *pattern.shape)
        steps = (pattern.units, *pattern.strides)
    body = f"({', '.join(map(str, shape))})"
    layout = f"({body}, {steps})" if strided else body
    what = f'("{pattern.level}",)' if not count else "threads"
    quoted = ", ".join(f'"{n}"' for n in names)
    return f"with Mesh({what}, layout={layout}, names=({quoted})) as compute:"


def judge(
    atom: MmaAtom,
    mesh: Mesh,
    lhs: TensorType,
    rhs: TensorType,
    acc: TensorType,
    given: Mapping[str, Any] | None = None,
    windows: tuple[Window | None, Window | None] = (None, None),
) -> Fit | Unmet:
    """Whether ``acc += lhs · rhs`` may be done by ``atom`` on ``mesh``.

    ``given`` fixes parameters; those left open are searched over their domains, larger
    atoms first. ``windows`` are the parts of stored values that lhs and rhs are. The deepest
    unmet clause is the answer where none fits.
    """
    groups = match_mesh(atom, mesh)
    if isinstance(groups, Unmet):
        return groups
    worst: Unmet | None = None
    for env in parameters(atom, lhs, acc, dict(given or {})):
        found = env
        if not isinstance(env, Unmet):
            found = _under(atom, groups, env, (lhs, rhs, acc), windows)
        if isinstance(found, Fit):
            return found
        assert isinstance(found, Unmet)
        if not isinstance(env, Unmet):
            found = replace(found, parameters={p.name: env[p.name] for p in atom.parameters})
        if worst is None or found.depth > worst.depth:
            worst = found
    assert worst is not None
    return worst


def parameters(
    atom: MmaAtom, lhs: TensorType, acc: TensorType, given: dict[str, Any]
) -> Iterator[Env | Unmet]:
    """Bindings of the atom's parameters to try, each checked against its predicates."""
    env = {k: dtype_name(v) for k, v in given.items()}
    env = {k: (int(v) if v.isdigit() else v.split(".")[-1]) for k, v in env.items()}
    env.setdefault("dtype", lhs.dtype.name)
    names = {p.name for p in atom.parameters}
    if "n" in names and "n" not in env:
        extent = acc.shape[-1]
        sizes = [n for n in range(256, 7, -8) if isinstance(extent, int) and extent % n == 0]
        for n in sizes or [8]:
            yield from _domains(atom, {**env, "n": n})
        return
    yield from _domains(atom, env)


def _domains(atom: MmaAtom, env: dict[str, Any]) -> Iterator[Env | Unmet]:
    open_names = [p for p in atom.parameters if p.name not in env]
    if not open_names:
        yield _checked(atom, env)
        return
    param, *_ = open_names
    values = param.domain(env)
    if not values:
        yield Unmet("parameter", f"a value of {param.name}", "none is allowed here")
        return
    for value in values:
        yield from _domains(atom, {**env, param.name: value})


def _checked(atom: MmaAtom, env: Env) -> Env | Unmet:
    for param in atom.parameters:
        for predicate in param.predicates:
            if not predicate.holds(env):
                got = f"{param.name} = {env[param.name]}"
                return Unmet("parameter", predicate.text(), got, predicate.nearest(env))
        domain = param.domain(env)
        if domain and env[param.name] not in domain:
            want = f"{param.name} in {{{', '.join(domain)}}}"
            return Unmet("parameter", want, f"{param.name} = {env[param.name]}", domain[0])
    return env


def _under(
    atom: MmaAtom,
    groups: Groups,
    env: Env,
    operands: tuple[TensorType, TensorType, TensorType],
    windows: tuple[Window | None, Window | None],
) -> Fit | Unmet:
    lhs, rhs, acc = operands
    chosen = {p.name: env[p.name] for p in atom.parameters}
    env = atom.completed(env, lhs.dtype.bits)
    patterns = {name: atom.operand(name, env) for name in "ABC"}
    tiles = {"A": lhs, "B": rhs, "C": acc}
    for name, tile in tiles.items():
        want = patterns[name].dtype_under(env)
        if tile.dtype.name != want and not (want == "tf32" and tile.dtype.name == "f32"):
            return Unmet("dtype", f"{name} of {want}", f"{tile.dtype}", f'tf.cast(..., "{want}")')
    for name, tile in tiles.items():
        if tile.storage != patterns[name].storage:
            want = patterns[name].storage
            return Unmet("storage", f"{name} in {want}", f"{name} in {tile.storage}", f'"{want}"')
    shape = atom.shape(env)
    whole = (*acc.shape, lhs.shape[1])
    repeat: list[int] = []
    for axis, extent, unit in zip("mnk", whole, shape, strict=True):
        if not isinstance(extent, int) or extent % unit:
            return Unmet("shape", f"{axis} a multiple of {unit}", f"{axis} = {extent}")
        repeat.append(extent // unit)
    bound: dict[Axis, tuple[int, int]] = {}
    dims = {"A": (0, 2), "B": (2, 1), "C": (0, 1)}
    solved: dict[str, Mapping[str, int]] = {}
    parts = {"A": windows[0], "B": windows[1], "C": None}
    for name, tile in tiles.items():
        use = Use(name, tile, parts[name], dims[name])
        found = _operand(use, patterns[name], groups, env, bound)
        if isinstance(found, Unmet):
            return found
        solved[name] = found
    bind = [1, 1, 1]
    for axis, (n, _) in bound.items():
        bind[n] *= axis.extent
    serial = tuple(r // b for r, b in zip(repeat, bind, strict=True))
    return Fit(chosen, shape, tuple(bind), serial, groups, solved)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Use:
    """An operand: its letter, type, the window of a stored value that it is, and which of
    (m, n, k) its axes are."""

    name: str
    tile: TensorType
    window: Window | None
    dims: tuple[int, int]


def _operand(
    use: Use,
    pattern: TensorPattern,
    groups: Groups,
    env: Env,
    bound: dict[Axis, tuple[int, int]],
) -> Mapping[str, int] | Unmet:
    name, tile = use.name, use.tile
    atom = tuple(value_of(x, env) for x in pattern.shape)
    expected = ""
    for arrangement in pattern.arrangements:
        if isinstance(arrangement, FragmentPattern):
            clash = match_fragment(arrangement, tile, atom, groups, env, bound, use.dims)
            if clash is None:
                return {}
            expected = fragment_text(arrangement, tile, atom, groups, env)
            return Unmet(name, expected, clash, expected)
        found = match_shared(arrangement, tile, atom, env, use.window, pattern.align)
        if found is not None:
            return found
        expected = expected or shared_text(arrangement, tile, atom, env)
    if use.window is not None:
        return Unmet(name, expected, f"a part of {use.window.whole}", expected)
    got = tile.layout.text() if tile.layout is not None else "the default row-major layout"
    return Unmet(name, expected, got, expected)


# Registers


def match_fragment(
    pattern: FragmentPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    groups: Groups,
    env: Env,
    bound: dict[Axis, tuple[int, int]],
    dims: tuple[int, int],
) -> str | None:
    """None if each unit of the atom's mesh holds what the instruction puts there.

    Splits over group axes are *bind*: different groups do different repeats. Their digit
    must step over whole atoms, and all operands must bind a group to the same digit.
    """
    want = {(groups.atom[axis], dim): inner for axis, dim, inner in _digits(pattern, env)}
    for digit in tile.digits:
        key = (digit.axis, digit.dim)
        if digit.axis in groups.atom:
            if want.pop(key, None) != digit.inner:
                return f"{digit.axis.name} holds a digit of axis {digit.dim} over {digit.inner}"
            continue
        if digit.axis not in groups.groups:
            return f"split over {digit.axis.name}, which is not of the executing mesh"
        if not isinstance(digit.inner, int) or digit.inner % atom[digit.dim]:
            return f"{digit.axis.name} splits inside an atom (over {digit.inner})"
        mine = dims[digit.dim], digit.inner
        if bound.setdefault(digit.axis, mine) != mine:
            return f"{digit.axis.name} is bound to another part of the tile by another operand"
    if want:
        axis, dim = next(iter(want))
        return f"not split over {axis.name} along axis {dim}"
    return None


def _digits(pattern: FragmentPattern, env: Env) -> Iterator[tuple[int, int, int]]:
    """(atom-mesh axis, logical axis, inner) of each bound mode."""
    sizes = [value_of(x, env) for x in pattern.shape]
    for dim, modes in enumerate((range(pattern.rows), range(pattern.rows, len(sizes)))):
        inner = 1
        for mode in reversed(modes):
            axis = pattern.axes[mode]
            if axis is not None:
                yield axis, dim, inner
            inner *= sizes[mode]


def fragment_text(
    pattern: FragmentPattern, tile: TensorType, atom: tuple[int, ...], groups: Groups, env: Env
) -> str:
    """The layout of the whole tile, to be pasted: groups in front of the first axis."""
    sizes = [value_of(x, env) for x in pattern.shape]
    cut = pattern.rows
    words = [
        f"{size} @ compute.{groups.atom[axis].name}" if axis is not None else str(size)
        for size, axis in zip(sizes, pattern.axes, strict=True)
    ]
    lead = [f"{g.extent} @ compute.{g.name}" for g in groups.groups]
    rows, columns = tile.shape
    held = atom[0]
    for g in groups.groups:
        held *= g.extent
    if isinstance(rows, int) and rows % held == 0 and rows // held > 1:
        lead.append(str(rows // held))
    tail: list[str] = []
    if isinstance(columns, int) and columns // atom[1] > 1:
        tail.append(str(columns // atom[1]))
    return f"({', '.join([*lead, *words[:cut], *tail, *words[cut:]])})"


# Shared memory


def match_shared(
    pattern: SharedPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    env: Env,
    window: Window | None = None,
    align: int = 1,
) -> Mapping[str, int] | None:
    """The pattern's variables if every atom of the tile lies as the pattern says, else None.

    Variables are read off single steps of the tile's layout and then every element of every
    atom is compared, so nothing is assumed of how the layout was written.
    """
    layout = tile.layout
    offsets = place(tile, window)
    if isinstance(offsets, str) or offsets.align % align:
        return None
    if layout is not None and layout.split_axes:
        return None
    swizzle = offsets.swizzle
    key = None if swizzle is None else (swizzle.B, swizzle.M, swizzle.S)
    span = SPANS.get(key)
    if span is None or span not in pattern.spans:
        return None
    bound: dict[str, Any] = {**env, "W": span * 8 // tile.dtype.bits}
    if not _solve(pattern, atom, offsets, bound):
        return None
    for left, right in pattern.equal:
        if value_of(left, bound) != value_of(right, bound):
            return None
    for name, unit in pattern.multiples:
        if bound[name] % value_of(unit, bound):
            return None
    shape = tuple(tuple(value_of(x, bound) for x in group) for group in pattern.shape)
    steps = tuple(tuple(value_of(x, bound) for x in group) for group in pattern.strides)
    for dim, extent in enumerate(tile.shape):  # offsets add up over the axes
        for base in range(0, int(extent), atom[dim]):  # type: ignore[arg-type]
            start = offsets.along(dim, base)
            for i in range(atom[dim]):
                if offsets.along(dim, base + i) - start != _nested(i, shape[dim], steps[dim]):
                    return None
    return {k: bound[k] for k in ("W", "l", "s", "r") if k in bound}


def _solve(
    pattern: SharedPattern, atom: tuple[int, ...], offsets: Place, bound: dict[str, Any]
) -> bool:
    """Bind unknown extents from the atom's extents, unknown strides from single steps."""
    for dim, (group, steps) in enumerate(zip(pattern.shape, pattern.strides, strict=True)):
        known = 1
        open_extent: str | None = None
        for extent in group:
            missing = [s.name for s in symbols(extent) if s.name not in bound]
            if missing:
                open_extent = missing[0]
            else:
                known *= value_of(extent, bound)
        if open_extent is not None:
            if known == 0 or atom[dim] % known:
                return False
            bound[open_extent] = atom[dim] // known
        inner = 1
        for extent, step in zip(reversed(group), reversed(steps), strict=True):
            size = value_of(extent, bound)
            for symbol in symbols(step):
                if symbol.name not in bound:
                    bound[symbol.name] = offsets.along(dim, inner) if size > 1 else 0
            inner *= size
        if inner != atom[dim]:
            return False
    return True


def _nested(index: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> int:
    total = 0
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        total += index % extent * step
        index //= extent
    return total


def shared_text(pattern: SharedPattern, tile: TensorType, atom: tuple[int, ...], env: Env) -> str:
    """A layout of the whole tile that meets the pattern, to be pasted."""
    fast = 0 if pattern.strides[0][-1] == 1 else 1
    shape = [int(e) for e in tile.shape]  # type: ignore[arg-type]
    return panels(shape, tile.dtype.bits, fast, max(pattern.spans))
