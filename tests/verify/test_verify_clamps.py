"""Clamps as loops of their own, and sums of digits below a limit, against enumeration."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from tilefoundry.ir.expr import Sym, evaluate, maximum, minimum
from tilefoundry.verify.clamps import loops_of_clamps
from tilefoundry.verify.tiling import _below

ENDS = st.integers(-20, 20)


@given(
    st.tuples(st.integers(-5, 5), st.integers(1, 4), st.integers(1, 9)),
    st.lists(st.tuples(st.sampled_from([maximum, minimum]), ENDS, st.integers(1, 3), ENDS),
             min_size=1, max_size=3),
    st.integers(1, 5),
)  # fmt: skip
def test_a_clamp_takes_what_its_run_says(run, clamps, weight):
    first, apart, count = run
    step = Sym("i", first, first + (count - 1) * apart)
    inner = step.expr()
    for pick, end, times, more in clamps:
        inner = pick(inner * times + more, end)
    index = (inner * weight + 7,)
    (found,), made = loops_of_clamps(index, {step: run})
    taken = {evaluate(index[0], {step: first + n * apart}) for n in range(count)}
    if made:
        ((sym, (start, distance, number)),) = made.items()
        values = {evaluate(found, {sym: start + n * distance}) for n in range(number)}
        assert values == taken and len(values) == number
    else:
        assert found == index[0]
        inside = sorted(taken)
        uneven = len({b - a for a, b in pairwise(inside)}) > 1
        if len(clamps) == 1 and len(inside) > 2:
            assert uneven or "m" not in str(index[0])  # no min, no max is left


def test_a_variable_that_stands_elsewhere_too_stays():
    step, other = Sym("step", 0, 9), Sym("other", 0, 9)
    late = maximum(step.expr() - 1, 0)
    runs = {step: (0, 1, 10), other: (0, 1, 10)}
    for index in (
        (late, step.expr()),
        (late + 3 * step.expr(),),
        (late * step.expr(),),
        (late, minimum(step.expr(), 5)),
        (maximum(step.expr(), other.expr()),),
    ):
        assert loops_of_clamps(index, runs) == (index, {})
    _, made = loops_of_clamps((late, 2 * late, other.expr()), runs)
    assert list(made.values()) == [(0, 1, 9)]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=4),
    st.integers(-3, 400),
)
def test_digits_below_a_limit_are_counted(parts, limit):
    counts, top = [], 0
    for gap, count in parts:
        counts.append((top + 1 + gap, count))
        top += counts[-1][0] * (count - 1)
    sums = [
        sum(w * d for (w, _), d in zip(counts, digits, strict=True))
        for digits in product(*(range(c) for _, c in counts))
    ]
    assert _below(limit, tuple(counts)) == sum(s < limit for s in sums)
