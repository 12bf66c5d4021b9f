"""The one legality routine: a use of a matrix instruction against its contract.

Clauses are judged from the outside in: mesh, parameters, element types, storage, tile shape,
arrangement of each operand. The answer is a :class:`Fit` or the deepest clause that is not
met, with what was expected, what was found, and what would meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import compact_strides
from tilefoundry.targets.contract.match import (
    Groups,
    bound_text,
    fast_axis,
    fragment_text,
    match_fragment,
    match_shared,
    shared_text,
)
from tilefoundry.targets.contract.pattern import (
    Env,
    FragmentPattern,
    MmaAtom,
    TensorPattern,
    dtype_name,
    value_of,
)
from tilefoundry.targets.contract.place import Window, place

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
    keeps: bool = False
    """What would fit keeps the axis that is contiguous now."""

    @property
    def depth(self) -> tuple[int, bool]:
        """How far the use got; among equals, what changes less is the better answer."""
        return CLAUSES.index(self.clause), self.keeps


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
    """The units in force as groups of the atom's execution mesh, their axes in any order."""
    pattern = atom.execution_mesh
    want = pattern.text(groups=True)
    here = mesh.at(pattern.level)
    if not here:
        return Unmet("mesh", want, str(mesh), arranged(atom, mesh))
    found: list[Axis] = []
    for extent, stride in zip(pattern.shape, pattern.strides, strict=True):
        fits = [a for a in here if (a.extent, a.stride) == (extent, stride) and a not in found]
        if not fits:
            return Unmet("mesh", want, str(mesh), arranged(atom, mesh))
        found.append(fits[0])
    groups = tuple(a for a in here if a not in found)
    base = mesh.offset(pattern.level)
    if base % pattern.align or any(g.stride % pattern.align for g in groups):
        got = f"p0 = {base}, group strides {tuple(g.stride for g in groups)}"
        return Unmet("mesh", f"p0 % {pattern.align} == 0, groups alike", got)
    return Groups(tuple(found), groups, base)


def arranged(atom: MmaAtom, mesh: Mesh) -> str:
    """The scope to write so that the units in force execute the atom."""
    pattern = atom.execution_mesh
    here = mesh.at(pattern.level)
    count = (
        mesh.count(pattern.level) if here else dict(mesh.sizes).get(pattern.level, pattern.units)
    )
    if count % pattern.units:
        return f"a {pattern.level} scope whose units are a multiple of {pattern.units}"
    shape = (count // pattern.units, *pattern.shape)
    names = ("group", *(f"u{n}" for n in range(len(pattern.shape))))
    strided = pattern.strides != compact_strides(pattern.shape)
    body = f"{shape}"
    layout = f"({body}, {(pattern.units, *pattern.strides)})" if strided else body
    what = pattern.level + "s" if here else f'("{pattern.level}",)'
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
    bad = _violated(atom, env)
    if bad is not None:
        yield bad
        return
    open_names = [p for p in atom.parameters if p.name not in env]
    if not open_names:
        yield env
        return
    param, *_ = open_names
    values = param.domain(env)
    if not values:
        yield Unmet("parameter", f"a value of {param.name}", "none is allowed here")
        return
    for value in values:
        yield from _domains(atom, {**env, param.name: value})


def _violated(atom: MmaAtom, env: Env) -> Unmet | None:
    """What the parameters that are bound do not meet."""
    for param in atom.parameters:
        if param.name not in env:
            continue
        for predicate in param.predicates:
            if not predicate.holds(env):
                got = f"{param.name} = {env[param.name]}"
                return Unmet("parameter", predicate.text(), got, predicate.nearest(env))
        domain = param.domain(env)
        if domain and env[param.name] not in domain:
            want = f"{param.name} in {{{', '.join(domain)}}}"
            return Unmet("parameter", want, f"{param.name} = {env[param.name]}", domain[0])
    return None


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
    dims = {"A": (0, 2), "B": (2, 1), "C": (0, 1)}
    for name, tile in tiles.items():
        want = patterns[name].storage
        if tile.storage != want:
            fix = _brought(patterns[name], tile, groups, env, dims[name])
            return Unmet("storage", f"{name} in {want}", f"{name} in {tile.storage}", fix)
    shape = atom.shape(env)
    whole = (*acc.shape, lhs.shape[1])
    repeat: list[int] = []
    for axis, extent, unit in zip("mnk", whole, shape, strict=True):
        if not isinstance(extent, int) or extent % unit:
            return Unmet("shape", f"{axis} a multiple of {unit}", f"{axis} = {extent}",
                         _filled_up(axis, extent, unit))  # fmt: skip
        repeat.append(extent // unit)
    bound: dict[Axis, tuple[int, int]] = {}
    solved: dict[str, Mapping[str, int]] = {}
    parts = {"A": windows[0], "B": windows[1], "C": None}
    for name, tile in tiles.items():
        use = Use(name, tile, parts[name], dims[name])
        found = _operand(use, patterns[name], groups, env, bound)
        if isinstance(found, Unmet):
            return found
        solved[name] = found
    texts = {
        name: bound_text(first, tiles[name], tuple(value_of(x, env) for x in pattern.shape), groups,
                         env, dims[name], bound)
        for name, pattern in patterns.items()
        if isinstance(first := pattern.arrangements[0], FragmentPattern)
    }  # fmt: skip
    bad = _unbound(tiles, bound, dims, texts)
    if bad is not None:
        return bad
    bind = [1, 1, 1]
    for axis, (n, _) in bound.items():
        bind[n] *= axis.extent
    serial = tuple(r // b for r, b in zip(repeat, bind, strict=True))
    return Fit(chosen, shape, tuple(bind), serial, groups, solved)  # type: ignore[arg-type]


def _filled_up(axis: str, extent: Dim, unit: int) -> str:
    """How an extent comes to be a multiple."""
    if not isinstance(extent, int):
        return f"pad {axis} to a multiple of {unit} by tf.pad, so that every step has a whole tile"
    more = -extent % unit
    return (
        f"make {axis} {extent + more}: pad its axis by {more} in front of the loop, "
        f"tf.pad(x, pads, 0), and slice the result, or tile by a multiple of {unit}"
    )


def _brought(
    pattern: TensorPattern, tile: TensorType, groups: Groups, env: Env, dims: tuple[int, int]
) -> str:
    """The reshard that brings a tile where the pattern wants it."""
    first = pattern.arrangements[0]
    atom = tuple(value_of(x, env) for x in pattern.shape)
    if isinstance(first, FragmentPattern):
        layout = fragment_text(first, tile, atom, groups, env, dims)
    elif all(isinstance(e, int) for e in tile.shape):
        layout = shared_text(first, tile, atom, env)
    else:
        return f'tf.reshard(..., storage="{pattern.storage}")'
    return f'tf.reshard(..., {layout}, "{pattern.storage}")'


def _unbound(
    tiles: Mapping[str, TensorType],
    bound: Mapping[Axis, tuple[int, int]],
    dims: Mapping[str, tuple[int, int]],
    texts: Mapping[str, str],
) -> Unmet | None:
    """What one operand binds to a group axis, the others follow: registers that a group does
    not name by constants, and sums over a part of k that are not partial, are refused. ``texts``:
    the layouts of those in registers that go with what is bound."""
    partial = {axis for axis, _ in tiles["C"].partial}
    for axis, (dim, _) in bound.items():
        if dim == 2 and axis not in partial:
            sums = f'@ {{compute.{axis.name} @ P("sum")}}'
            got = f"{axis.name} holds a part of k, C is not partial on it"
            fix = f"{texts.get('C', '(...)')} {sums}"
            return Unmet("C", f"partial sums: (...) {sums}", got, fix)
        for name, tile in tiles.items():
            held = tile.layout is not None and axis in tile.layout.split_axes
            if dim in dims[name] and not held and tile.storage == tiles["C"].storage:
                want = f"{name} split over {axis.name} as the other operands are"
                fix = f'tf.reshard(..., {texts[name]}, "{tile.storage}")' if name in texts else ""
                return Unmet(name, want, f"{name} whole on each {axis.name}", fix)
    for axis in partial:
        if bound.get(axis, (0, 0))[0] != 2:
            return Unmet("C", f"operands split along k over {axis.name}, or C whole",
                         f"C partial on {axis.name}: each unit adds the whole product")  # fmt: skip
    return None


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
    expected, keeps = "", False
    for arrangement in pattern.arrangements:
        if isinstance(arrangement, FragmentPattern):
            clash = match_fragment(arrangement, tile, atom, groups, env, bound, use.dims)
            if clash is None:
                return {}
            expected = fragment_text(arrangement, tile, atom, groups, env, use.dims)
            return Unmet(name, expected, clash, expected)
        found = match_shared(arrangement, tile, atom, env, use.window, pattern.align)
        if found is not None:
            return found
        if not expected:
            expected = shared_text(arrangement, tile, atom, env)
            keeps = _contiguous(use) == fast_axis(arrangement)
    if use.window is not None:
        got = f"a part of {use.window.whole}"
        return Unmet(name, expected, got, expected, keeps=keeps)
    got = tile.layout.text() if tile.layout is not None else "the default row-major layout"
    return Unmet(name, expected, got, expected, keeps=keeps)


def _contiguous(use: Use) -> int | None:
    """The axis whose neighbours are neighbours in memory."""
    found = place(use.tile, use.window)
    if isinstance(found, str):
        return None
    return next((n for n, m in enumerate(found.modes) if m and m[-1][1] == 1), None)
