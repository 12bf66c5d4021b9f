"""Distinct values of expressions, against every unit and step by brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.analyze.distinct import distinct, how_many
from tilefoundry.analyze.figure import Undecidable
from tilefoundry.ir.expr import LoopVar, evaluate, maximum, minimum, mod
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Block, Loop


def coordinate(name, extent):
    axis = Axis("cta", name, extent, 1, 0)
    return Coord(name, 0, extent - 1, axis=axis)


def brute(keys, coords, loops):
    """Every unit, every step as Python's own loops go."""
    seen = set()

    def walk(env, left):
        if not left:
            seen.add(tuple(evaluate(key, env) for key in keys))
            return
        (loop, span), *rest = left
        for value in range(*(evaluate(end, env) for end in span)):
            walk({**env, loop.var: value}, rest)

    for crd in product(*(range(c.axis.extent) for c in coords)):
        walk(dict(zip(coords, crd, strict=True)), loops)
    return seen


def loop(name, start, stop, step, hi):
    var = LoopVar(name, 0, hi)
    return Loop(var, start, stop, step, (), Block(())), (start, stop, step)


@st.composite
def cases(draw):
    """Two coordinates, three loops within one another, keys of all that stand around them."""
    coords = [coordinate("a", draw(st.integers(1, 5))), coordinate("b", draw(st.integers(1, 3)))]
    known = [c.expr() for c in coords]
    loops = []
    for name in "ijk"[: draw(st.integers(0, 3))]:
        start = draw(st.sampled_from([0, 1, *known]))
        stop = draw(st.sampled_from([0, 3, 7, *(2 * x + 1 for x in known)]))
        found = loop(name, start, stop, draw(st.sampled_from([1, 2, 3])), 40)
        loops.append(found)
        known.append(found[0].var.expr())

    def expression(depth):
        form = draw(st.integers(0, 6 if depth else 1))
        if form == 0:
            return draw(st.integers(0, 9))
        if form == 1:
            return draw(st.sampled_from(known))
        a, b = expression(depth - 1), expression(depth - 1)
        n = draw(st.integers(2, 5))
        return {
            2: lambda: a + n * b, 3: lambda: a * b, 4: lambda: (a + b) // n,
            5: lambda: mod(a - b, n), 6: lambda: maximum(minimum(a, b), a - n),
        }[form]()  # fmt: skip

    return [expression(3) for _ in range(draw(st.integers(1, 3)))], coords, loops


@settings(max_examples=300, deadline=None)
@given(cases())
def test_they_are_those_of_every_step(case):
    keys, coords, loops = case
    assert distinct(keys, coords, loops) == brute(keys, coords, loops)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_they_are_as_many(case):
    keys, coords, loops = case
    for key in keys:
        assert how_many(key, coords, loops) in (None, len(brute([key], coords, loops)))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-12, 12), st.integers(1, 5)), max_size=3),
    st.lists(st.tuples(st.integers(-3, 12), st.integers(0, 5), st.integers(1, 4)), max_size=2),
)
def test_sums_of_multiples_are_as_many(units, steps):
    """Of coordinates, and of loops around one another that begin where the one around them is."""
    coords = [coordinate(f"c{n}", extent) for n, (_, extent) in enumerate(units)]
    key, start, loops = 0, 0, []
    for unit, (factor, _) in zip(coords, units, strict=True):
        key = key + factor * unit.expr()
        start = unit.expr()
    for n, (factor, trips, step) in enumerate(steps):
        found = loop(f"i{n}", start, start + trips * step, step, 99)
        loops.append(found)
        start = found[0].var.expr()
        key = key + factor * start
    assert how_many(key, coords, loops) in (None, len(brute([key], coords, loops)))


UNIT = coordinate("at", 4)


@pytest.mark.parametrize(
    ("factors", "many"),
    [
        ((1, 4), 4000),  # rows in turn
        ((1000, 1), 4000),  # a part of the rows for each
        ((8, 32), 4000),  # tiles of 8 rows in turn
        ((1, 2), 2002),  # two of four are another's, too: 0 to 3 + 1998
        ((2, 2), 1003),
        ((5000, 3), 4000),
        ((0, 7), 1000),
        ((-1, 4), 4000),
        ((3, 2), None),  # 0, 2, 3, .. without 1
    ],
)
def test_what_units_take_in_turn(factors, many):
    step, span = loop("i", 0, 1000, 1, 999)
    key = factors[0] * UNIT.expr() + factors[1] * step.var.expr()
    assert how_many(key, [UNIT], [(step, span)]) == many
    assert many in (None, len(brute([key], [UNIT], [(step, span)])))


def test_rows_in_turn_of_more_than_can_be_walked():
    step, span = loop("i", UNIT.expr(), 1 << 40, 4, (1 << 40) - 1)
    assert how_many(16 * step.var.expr(), [UNIT], [(step, span)]) == 1 << 40


def test_a_serpentine_of_many_steps():
    """4,352 tasks of 80 steps on 132 units, every other wave of them backwards along k."""
    unit = coordinate("at", 132)
    task, span = loop("task", unit.expr(), 4352, 132, 4351)
    step, along = loop("step", 0, 5120, 64, 5119)
    turn = mod(task.var.expr() // 132, 2)
    at = step.var.expr() - 2 * step.var.expr() * turn + 5056 * turn
    rows = 2048 * (task.var.expr() // 1088) + 128 * mod(task.var.expr(), 16)
    found = distinct([rows, at], [unit], [(task, span), (step, along)])
    assert found == set(product(range(0, 8192, 128), range(0, 5120, 64)))


def test_what_takes_too_long_is_not_decided():
    many, span = loop("i", 0, 1 << 23, 1, (1 << 23) - 1)
    with pytest.raises(Undecidable, match="evaluations, more than 4194304"):
        distinct([many.var.expr()], [], [(many, span)])
