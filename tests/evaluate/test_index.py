"""Index expressions and coordinates of all units at once, against one unit at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.evaluate.index import values
from tilefoundry.evaluate.lanes import ALL, Enumeration
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, LoopVar
from tilefoundry.ir.mesh import Mesh, arrange, rearrange

SYMBOLS = [LoopVar(name, 0, 20) for name in "ijk"]
"""Names for Python's own arithmetic, in which the expected values are computed."""
I = SYMBOLS[0].expr()  # noqa: E741
FEW = settings(max_examples=200, deadline=None)

leaves = st.one_of(st.integers(-3, 9).map(str), st.sampled_from("ijk"))
texts = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(["low", "high"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
    ),
    max_leaves=6,
)


@given(texts, st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=1, max_size=6), st.booleans())
@FEW
def test_expressions(text, rows, same):
    """``same``: k is one integer for all, as an open extent or a plain loop's index is."""
    rows = [(i, j, rows[0][2] if same else k) for i, j, k in rows]
    scope = {s.name: s.expr() for s in SYMBOLS} | {"low": ix.minimum, "high": ix.maximum}
    try:
        made: Dim = eval(text, scope)
        expected = [eval(text, dict(zip("ijk", r, strict=True), low=min, high=max)) for r in rows]
    except (ZeroDivisionError, ArithmeticError):
        return
    columns = {s: np.array([r[n] for r in rows]) for n, s in enumerate(SYMBOLS)}
    if same:
        columns[SYMBOLS[2]] = rows[0][2]
    got = values(made, columns)
    assert np.broadcast_to(got, len(rows)).tolist() == expected


@pytest.mark.parametrize(("made", "rows"), [(7 // I, [7, 3]), (7 % I, [0, 1]), (I // I, [1, 1])])
def test_one_unit_that_divides_by_zero(made, rows):
    assert np.broadcast_to(values(made, {SYMBOLS[0]: np.array([1, 2])}), 2).tolist() == rows
    if isinstance(made, ix.Expr):
        with pytest.raises(ZeroDivisionError):
            values(made, {SYMBOLS[0]: np.array([1, 0])})


WARPS = Mesh(arrange("thread", (3, 32), ("warp", "lane")), (("thread", 96),))
QUADS = rearrange(WARPS, (12, 8), ("quad", "one"))
CTAS = Mesh(arrange("cta", (2, 5), ("row", "col")), (("cta", 10),))
BOTH = Mesh((*CTAS.axes, *WARPS.axes), (("cta", 10), ("thread", 96)))


def coordinates(mesh, level):
    """Of every unit of a level, by its number: its coordinates on the mesh's axes."""
    axes = mesh.at(level)
    tuples = list(np.ndindex(*(a.extent for a in axes)))
    return {
        unit: dict(zip(axes, at, strict=True))
        for unit, at in zip(mesh.units(level), tuples, strict=True)
    }


@pytest.mark.parametrize("names", ["warp", "lane", "warp lane", "quad", "quad one", "warp quad"])
def test_units_that_occur(names):
    """Axes of any arrangement, under the arrangement in warps: one tuple per unit, once."""
    of = {a.name: a for a in (*WARPS.axes, *QUADS.axes)}
    axes = tuple(of[n] for n in names.split())
    by_unit = [
        coordinates(WARPS, "thread")[unit] | coordinates(QUADS, "thread")[unit]
        for unit in range(96)
    ]
    expected = {tuple(at[a] for a in axes) for at in by_unit}
    units = Enumeration().units(axes, WARPS)
    got = [tuple(row) for row in units.table.tolist()]
    assert len(got) == len(set(got)) and set(got) == expected


def test_units_of_two_levels_and_where_they_are_found():
    known = Enumeration()
    row, col, warp = CTAS.axes[0], CTAS.axes[1], WARPS.axes[0]
    units = known.units((row, col, warp), BOTH)
    assert len(units) == 2 * 5 * 3
    assert known.units((row, col, warp), BOTH) is units
    wide, narrow = known.units((row, warp), BOTH), known.units((warp,), BOTH)
    for target in (units, wide, narrow, ALL):
        places = units.places(target)
        assert (places is None) == (target is units)
        if places is not None:
            for unit, place in enumerate(places.tolist()):
                at = dict(zip(units.axes, units.table[unit], strict=True))
                assert [at[a] for a in target.axes] == target.table[place].tolist()
    few = known.keep((warp,), narrow.table[1:])
    assert units.find(few).tolist() == [w - 1 for _ in range(10) for w in range(3)]
    assert known.keep((warp,), narrow.table[1:]) is few


def test_an_axis_numbers_its_units():
    known = Enumeration()
    units = known.units(CTAS.axes, CTAS)
    assert units.numbers().tolist() == list(range(10))
    assert units.numbers(CTAS.axes[1:]).tolist() == list(range(5)) * 2
