"""Spreads and ratios against values worked out by hand."""

import pytest

from tilefoundry.judge.measure.statistics import Spread, calls_for, ratios, spread, steady


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([4.0], Spread(1, 4, 4, 4, 4)),
        ([1.0, 3.0], Spread(2, 2, 1.5, 2.5, 1)),
        ([5.0, 1.0, 4.0, 2.0, 3.0], Spread(5, 3, 2, 4, 1)),
        ([4.0, 1.0, 3.0, 2.0], Spread(4, 2.5, 1.75, 3.25, 1)),
    ],
)
def test_spread(values, wanted):
    assert spread(values) == wanted


def test_ratios_are_of_rounds_not_of_medians():
    # the medians 2 and 3 give 1.5; the rounds give 2, 2 and 1
    found = ratios(rival=[2.0, 6.0, 3.0], candidate=[1.0, 3.0, 3.0])
    assert found == Spread(3, 2, 1.5, 2, 1)


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        ([1.0, 1.0], False),
        ([9.0, 1.0, 1.02, 1.01], True),
        ([1.0, 1.02, 1.05], False),
        ([1.0, 1.0, 1.0, 2.0], False),
    ],
)
def test_steady(figures, wanted):
    assert steady(figures) is wanted


@pytest.mark.parametrize(
    ("each", "wanted"), [(1e-3, 10), (4e-3, 2), (1.0, 1), (1e-9, 200), (0.0, 200)]
)
def test_calls_that_fill_a_batch(each, wanted):
    assert calls_for(0.01, each, 200) == wanted
