"""Judging one set of extents: where bounds hold as stated, and where the reference is no better."""

import numpy as np
import pytest
from tensors import integers, raw

from tilefoundry.judge.case import LENIENCE, Case
from tilefoundry.judge.inputs import Drawn, Turn
from tilefoundry.judge.stated import Predicate

EXACT = np.linspace(1, 2, 64)
CLOSE = (Predicate("max_abs", {"max": 1e-6}),)


def case(values, reference_off, exact=EXACT, predicates=CLOSE, dtype="f32"):
    """A set of inputs of one class, whose reference is ``reference_off`` from ``exact``."""
    wanted = raw(exact + reference_off, dtype)
    asked = []

    def evaluate(inputs, most):
        asked.append(most)
        return [raw(exact[:most], "f64")], ""

    made = Case({}, {"output": predicates}, [Drawn(values, {})], [[wanted]], evaluate)
    return made, asked


def verdict(made, off, dtype="f32"):
    made.take(Turn(0), [raw(EXACT + off, dtype)])
    return made.rows()[0]


@pytest.mark.parametrize("values", ["ordinary", "given", "touched"])
def test_bounds_hold_as_stated(values):
    made, asked = case(values, 1e-3)
    assert not verdict(made, -1e-3).finding.passed and not asked
    assert verdict(case(values, 1e-3)[0], 1e-3).finding.passed


@pytest.mark.parametrize("values", ["wide", "cancelling", "shuffled", "special"])
def test_elsewhere_the_reference_may_be_no_better(values):
    made, asked = case(values, 1e-3)
    row = verdict(made, -1e-3)
    assert row.finding.passed and asked == [64] and "off float64 by 0.001" in row.notes[0]
    assert not verdict(case(values, 1e-3)[0], -1.01 * LENIENCE * 1e-3).finding.passed
    # A reference that is exact forgives nothing.
    assert not verdict(case(values, 0.0)[0], 1e-3).finding.passed


def test_equal_floats_are_never_forgiven():
    made, _ = case("wide", 1e-3, predicates=(Predicate("equal"),))
    assert not verdict(made, -1e-3).finding.passed


def test_the_worst_call_is_kept_and_calls_are_compared():
    made, _ = case("ordinary", 0.0)
    good, bad = raw(EXACT), raw(EXACT + 1e-3)
    made.take(Turn(0), [good])
    assert made.repeats is None and made.agrees
    made.take(Turn(0), [raw(EXACT)])
    assert made.repeats is True
    made.take(Turn(0), [bad])
    made.take(Turn(0), [good])
    assert made.repeats is False and not made.agrees
    (row,) = made.rows()
    assert row.run == 2 and row.finding.outside == 64
    assert [turn.passed for turn in made.turns] == [True, True, False, True]


def test_patterns_of_nan_are_named():
    made, _ = case("ordinary", 0.0)
    values = EXACT.copy()
    values[5] = np.nan
    made.take(Turn(0), [raw(values)])
    assert "1 NaN or infinities stand in other places, first at [5]" in made.rows()[0].notes


def test_errors_are_told_for_both():
    made, _ = case("ordinary", 1e-3)
    made.take(Turn(0), [raw(EXACT - 2e-3)])
    (errors,) = made.errors()
    assert errors.reference["max_abs"] == pytest.approx(1e-3, rel=1e-3)
    assert errors.candidate["max_abs"] == pytest.approx(2e-3, rel=1e-3)
    want = 2e-3 * np.sqrt(64) / np.linalg.norm(EXACT)
    assert errors.candidate["rel_l2"] == pytest.approx(want, rel=1e-3)
    wanted = [[integers([1, 2])]]
    whole = Case({}, {"output": (Predicate("equal"),)}, [Drawn("ordinary", {})], wanted,
                 lambda inputs, most: ([integers([1, 2])], ""))  # fmt: skip
    whole.take(Turn(0), [integers([1, 2])])
    assert whole.errors() == []
