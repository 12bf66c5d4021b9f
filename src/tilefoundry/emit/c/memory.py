"""Vectors from and to memory: contiguous, one element for all lanes, or lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilefoundry.emit.address import address
from tilefoundry.emit.c.text import bits_of, c_type, number, rounded, wide
from tilefoundry.ir.expr import Dim, Expr, Sym, bounds, substitute, symbols
from tilefoundry.tir.program import Scalar, View

if TYPE_CHECKING:
    from tilefoundry.emit.c.kernel import Kernel


def _steps(lanes: Sequence[Dim]) -> tuple[int, ...] | None:
    """How far each lane is from the first, where that is a number."""
    out = [x - lanes[0] for x in lanes]
    return None if any(isinstance(x, Expr) for x in out) else tuple(out)  # type: ignore[arg-type]


def _open(view: View, place: tuple[Dim, ...]) -> list[tuple[Dim, int]]:
    """Coordinates that may lie outside of the buffer, which the view allows."""
    if view.fill is None:
        return []
    out: list[tuple[Dim, int]] = []
    for x, extent in zip(place, view.buffer.shape, strict=True):
        lo, hi = bounds(x)
        if lo < 0 or hi >= extent:
            out.append((x, extent))
    return out


def _inside(k: Kernel, x: Dim, extent: int) -> str:
    lo, hi = bounds(x)
    words = [f"{k.dim(x)} >= 0"] if lo < 0 else []
    words += [f"{k.dim(x)} < {extent}"] if hi >= extent else []
    return " && ".join(words) or "1"


def _range(k: Kernel, edges: list[tuple[Dim, int]]) -> tuple[str, str] | None:
    """The lanes [lo, hi) that are inside, where they are a range; None where they are not."""
    lows, highs, tests = ["0"], [str(k.lanes)], list[str]()
    for x, extent in edges:
        lanes = k.per_lane(x)
        steps = _steps(lanes)
        if steps == (0,) * k.lanes:
            tests.append(_inside(k, lanes[0], extent))
        elif steps == tuple(range(k.lanes)):
            if bounds(lanes[0])[0] < 0:
                lows.append(k.dim(-lanes[0]))
            if bounds(lanes[-1])[1] >= extent:
                highs.append(k.dim(extent - lanes[0]))
        else:
            return None
    lo, hi = lows[-1], highs[-1]
    if len(lows) > 2 or len(highs) > 2:
        return None
    if tests:
        hi = f"({' && '.join(tests)} ? {hi} : 0)"
    return lo, hi


def _base(k: Kernel, view: View, at: Dim) -> str:
    name = k.names[view.buffer]
    return name if at == 0 else f"{name} + {k.dim(at)}"


def start(k: Kernel, view: View, at: tuple[Dim, ...]) -> Dim:
    """Where the element of the first lane lies in the buffer."""
    return k.per_lane(address(view.buffer, k.element(view, at)))[0]


def contiguous(k: Kernel, view: View, at: tuple[Dim, ...]) -> str | None:
    """A pointer to a whole vector of neighbours, all inside; None where it is none."""
    place = k.element(view, at)
    lanes = k.per_lane(address(view.buffer, place))
    if _open(view, place) or _steps(lanes) != tuple(range(k.lanes)):
        return None
    return _base(k, view, lanes[0])


def load(k: Kernel, view: View, at: tuple[Dim, ...]) -> str:
    """The view's elements at ``at``, one for each lane."""
    place = k.element(view, at)
    dtype, lanes = c_type(view.dtype), k.per_lane(address(view.buffer, place))
    edges, steps = _open(view, place), _steps(lanes)
    fill = bits_of(view.fill or 0, view.dtype)
    base = _base(k, view, lanes[0])
    if steps == (0,) * k.lanes and not any(_lane_edge(k, x) for x, _ in edges):
        tests = [_inside(k, x, extent) for x, extent in edges]
        one = f"*({base})"
        return f"tf_splat_{dtype}({' && '.join(tests)} ? {one} : {fill})" if tests else (
            f"tf_splat_{dtype}({one})"
        )  # fmt: skip
    if steps == tuple(range(k.lanes)):
        if not edges:
            return f"tf_load_{dtype}({base})"
        cut = _range(k, edges)
        if cut is not None:
            return f"tf_load_part_{dtype}({base}, {cut[0]}, {cut[1]}, {fill})"
    each: list[str] = []
    for lane, x in enumerate(lanes):
        one = f"{k.names[view.buffer]}[{k.dim(x)}]"
        tests = [_inside(k, k.per_lane(e)[lane], extent) for e, extent in edges]
        tests = [t for t in tests if t != "1"]
        each.append(f"{' && '.join(tests)} ? {one} : {fill}" if tests else one)
    return f"({dtype}v){{{', '.join(each)}}}"


def store(k: Kernel, view: View, at: tuple[Dim, ...], text: str, call: str = "") -> None:
    """Writes a lane's element each, whole vectors by ``call``; lanes of one address hold one
    value."""
    place = k.element(view, at)
    dtype, lanes = c_type(view.dtype), k.per_lane(address(view.buffer, place))
    edges, steps = _open(view, place), _steps(lanes)
    base = _base(k, view, lanes[0])
    if steps == tuple(range(k.lanes)):
        if not edges:
            k.out.line(f"{call or f'tf_store_{dtype}'}({base}, {text});")
            return
        cut = _range(k, edges)
        if cut is not None:
            k.out.line(f"tf_store_part_{dtype}({base}, {text}, {cut[0]}, {cut[1]});")
            return
    with k.out.block(""):
        k.out.line(f"{dtype}v all = {text};")
        seen: set[Dim] = set()
        for lane, x in enumerate(lanes):
            if x in seen:
                continue
            seen.add(x)
            tests = [_inside(k, k.per_lane(e)[lane], extent) for e, extent in edges]
            tests = [t for t in tests if t != "1"]
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            k.out.line(f"{guard}{k.names[view.buffer]}[{k.dim(x)}] = all[{lane}];")


def _lane_edge(k: Kernel, x: Dim) -> bool:
    return any(k.is_lane(s) for s in symbols(x))


def scalar(k: Kernel, operand: Scalar) -> str:
    """A number or an index expression for all lanes, as stored elements."""
    dtype = operand.dtype
    name = c_type(dtype)
    if not isinstance(operand.value, Expr):
        return f"tf_splat_{name}({bits_of(operand.value, dtype)})"
    have = wide(dtype)
    each = [k.dim(x) for x in k.per_lane(operand.value)]
    same = len(set(each)) == 1
    text = f"tf_splat_{have}({each[0]})" if same else f"({have}v){{{', '.join(each)}}}"
    return text if have == name else f"tf_f32_to_{name}({text})"


def constant(operand: Scalar) -> str | None:
    """A number in the type it is computed in; None for an index expression."""
    if isinstance(operand.value, Expr):
        return None
    return number(rounded(float(operand.value), operand.dtype)
                  if operand.dtype.is_float else operand.value, operand.dtype)  # fmt: skip


def inside_tests(k: Kernel, view: View, place: tuple[Dim, ...]) -> str:
    """What must hold for one element to be inside of the buffer; empty if it always is."""
    return " && ".join(_inside(k, x, extent) for x, extent in _open(view, place))


def whole_tests(k: Kernel, view: View) -> list[str] | None:
    """What must hold for all elements of a view to be inside of its buffer; None where
    corners do not tell."""
    tests: list[str] = []
    last: dict[Sym, int] = {v: e - 1 for v, e in zip(view.vars, view.shape, strict=True)}
    for x, extent in zip(view.index, view.buffer.shape, strict=True):
        low = high = x
        for var, most in last.items():
            step = substitute(x, {var: 1}) - substitute(x, {var: 0})
            if not isinstance(step, int):
                return None
            low = substitute(low, {var: 0 if step >= 0 else most})
            high = substitute(high, {var: most if step >= 0 else 0})
            if substitute(x, {var: most}) - substitute(x, {var: 0}) != step * most:
                return None
        if bounds(low)[1] < 0 or bounds(high)[0] >= extent:
            return None  # never
        tests += [f"{k.dim(low)} >= 0"] if bounds(low)[0] < 0 else []
        tests += [f"{k.dim(high)} < {extent}"] if bounds(high)[1] >= extent else []
    return tests
