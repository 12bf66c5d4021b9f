"""Each predicate against figures worked out by hand or in numpy's float64."""

import numpy as np
import pytest
from tensors import integers, raw

from tilefoundry.judge import predicates
from tilefoundry.judge.predicates import compare, worst_row
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor

NAN, INF = float("nan"), float("inf")


def judge(fn, got, want, **bounds):
    return compare([Predicate(fn, bounds)], raw(got), raw(want))[0]


@pytest.mark.parametrize(
    "fn, bounds, value",
    [
        ("max_abs", {"max": 0.5}, 0.5),
        ("max_rel", {"max": 0.25}, 0.25),
        ("rel_l2", {"max": 0.125}, 0.125),  # sqrt(0.25) / sqrt(4 + 4 + 4 + 4)
        ("allclose", {"atol": 0.0, "rtol": 0.25}, 1.0),
    ],
)
def test_values_worked_by_hand(fn, bounds, value):
    want, got = [2.0, 2.0, -2.0, 2.0], [2.0, 2.5, -2.0, 2.0]
    found = judge(fn, got, want, **bounds)
    assert found.value == value and found.passed
    tighter = {k: v * 0.999 for k, v in bounds.items()}
    found = judge(fn, got, want, **tighter)
    assert not found.passed
    assert (found.differ, found.index, found.got, found.expected) == (1, (1,), 2.5, 2.0)


def test_cosine_is_the_angles():
    found = judge("cosine", [1.0, 1.0], [1.0, 0.0], min=0.7)
    assert found.value == pytest.approx(2**-0.5) and found.passed
    assert not judge("cosine", [1.0, 1.0], [1.0, 0.0], min=0.71).passed
    assert not judge("cosine", [0.0, 0.0], [1.0, 0.0], min=0.0).passed


def test_allclose_adds_its_bounds():
    assert judge("allclose", [10.3], [10.0], atol=0.1, rtol=0.021).passed
    assert not judge("allclose", [10.3], [10.0], atol=0.1, rtol=0.019).passed


def test_ulp_counts_representable_values():
    want = np.array([1.0, -3.0], np.float32)
    got = np.nextafter(np.nextafter(want, np.float32(9)), np.float32(9))
    assert judge("ulp", got, want, max=2).passed
    found = judge("ulp", got, want, max=1)
    assert not found.passed and found.value == 2 and found.differ == 2


def test_equal_takes_values_not_bits():
    assert judge("equal", [0.0, 1.0], [-0.0, 1.0]).passed
    found = judge("equal", [0.0, 2.0, 3.0], [0.0, 1.0, 1.0])
    assert (found.passed, found.value, found.differ, found.index) == (False, 2, 2, (1,))


def test_differ_and_outside_each_have_one_meaning():
    got, want = [1.0, 1.1, 2.0, NAN, NAN], [1.0, 1.0, 1.0, NAN, 1.0]
    stated = [Predicate("max_abs", {"max": 0.5}), Predicate("equal"), Predicate("nan_inf"),
              Predicate("rel_l2", {"max": 9.0})]  # fmt: skip
    found = compare(stated, raw(got), raw(want))
    assert [f.differ for f in found] == [3, 3, 3, 3]
    assert [f.outside for f in found] == [2, 3, 1, None]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_neighbours_are_spelled_differently(dtype):
    low = raw([-0.1222670078], dtype)
    high = RawTensor(low.dtype, low.shape, low.flat.copy())
    high.flat.view(f"u{high.flat.itemsize}")[0] += 1  # the next larger magnitude
    (found,) = compare([Predicate("equal")], high, low)
    assert found.spelled[0] != found.spelled[1]
    back = [RawTensor.from_values(low.dtype, (1,), np.array([float(s)])) for s in found.spelled]
    assert [b.flat[0] for b in back] == [high.flat[0], low.flat[0]]


def test_values_are_spelled_short():
    found = judge("equal", [0.1, -0.0], [3.0, 1.0])
    assert found.spelled == ("0.1", "3")
    assert judge("equal", [-0.0], [1e20]).spelled == ("-0", "1e+20")
    (whole,) = compare([Predicate("equal")], integers([2**53 + 1], "i64"), integers([2], "i64"))
    assert whole.spelled == ("9007199254740993", "2")


def test_integers_beyond_float64():
    got, want = integers([2**53 + 1], "i64"), integers([2**53], "i64")
    assert not compare([Predicate("equal")], got, want)[0].passed


@pytest.mark.parametrize("fn, bounds", [
    ("equal", {}), ("max_abs", {"max": 1e30}), ("max_rel", {"max": 1e30}),
    ("rel_l2", {"max": 1e30}), ("allclose", {"atol": 1e30, "rtol": 1e30}), ("ulp", {"max": 1e30}),
    ("cosine", {"min": 0.0}), ("nan_inf", {}),
])  # fmt: skip
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_candidate_that_is_not_finite_fails_everything(fn, bounds, bad):
    if (fn, bad) == ("ulp", INF) or (fn, bad) == ("ulp", -INF):
        bounds = {"max": 100}  # infinity is a representable value, far away
    assert not judge(fn, [1.0, bad], [1.0, 2.0], **bounds).passed


def test_nan_inf_takes_the_places_that_are_not_finite_out_of_the_rest():
    want = [NAN, INF, -INF, 1.0]
    both = [Predicate("nan_inf"), Predicate("max_abs", {"max": 0.1})]
    assert all(f.passed for f in compare(both, raw(want), raw(want)))
    swapped = compare(both, raw([INF, NAN, -INF, 1.0]), raw(want))
    assert [f.passed for f in swapped] == [False, True]
    off = compare(both, raw([NAN, INF, -INF, 2.0]), raw(want))
    assert [f.passed for f in off] == [True, False]
    assert not compare([Predicate("nan_inf")], raw([NAN, INF, INF, 1.0]), raw(want))[0].passed


@pytest.mark.parametrize("fn, bounds", [
    ("max_abs", {"max": 1.0}), ("rel_l2", {"max": 1.0}), ("cosine", {"min": 0.5}), ("equal", {}),
    ("allclose", {"atol": 1.0, "rtol": 1.0}), ("max_rel", {"max": 1.0}), ("ulp", {"max": 9}),
])  # fmt: skip
def test_chunks_make_no_difference(fn, bounds, monkeypatch):
    rng = np.random.default_rng(3)
    want = rng.standard_normal((37, 5)) * np.exp2(rng.integers(-40, 40, (37, 1)))
    got = want * (1 + rng.standard_normal((37, 5)))
    whole = judge(fn, got, want, **bounds)
    monkeypatch.setattr(predicates, "PART", 16)
    parts = judge(fn, got, want, **bounds)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    assert (parts.differ, parts.index, parts.count) == (whole.differ, whole.index, 185)


def test_sums_of_squares_do_not_overflow():
    want = compare([Predicate("rel_l2", {"max": 1})], raw([1e200, 2e200], "f64"),
                   raw([1e200, 1e200], "f64"))[0]  # fmt: skip
    assert want.value == pytest.approx(2**-0.5)


@pytest.mark.parametrize("dtype, size", [
    ("f64", 1.7e308), ("f64", 5e-324), ("f64", 1e-200), ("f32", 3e38), ("f32", 1e-45),
    ("bf16", 2.0**127), ("f16", 6e-8),
])  # fmt: skip
def test_the_whole_is_judged_at_the_ends_of_a_type(dtype, size):
    want = np.full((3, 5), size)
    got = want.copy()
    got[1] = -size  # off by twice its size in a third of the elements
    rows = [raw(x, dtype) for x in (got, want)]
    rel_l2, cosine = compare(
        [Predicate("rel_l2", {"max": 2.0}), Predicate("cosine", {"min": 0.0})], *rows
    )
    assert rel_l2.value == pytest.approx((4 / 3) ** 0.5)
    assert cosine.value == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_an_infinity_is_off_all_but_itself(dtype):
    bound = [Predicate("rel_l2", {"max": 1.0})]
    same, other = ([INF, 1.0, x] for x in (2.0, 3.0))
    assert compare(bound, raw(other, dtype), raw(same, dtype))[0].value in (0.0, INF)
    assert not compare(bound, raw([1.0, 1.0, 2.0], dtype), raw(same, dtype))[0].passed
    assert not compare(bound, raw(same, dtype), raw([1.0, 1.0, 2.0], dtype))[0].passed
    assert not compare(bound, raw([NAN, 1.0, 2.0], dtype), raw([1.0, 1.0, 2.0], dtype))[0].passed


def test_the_worst_row():
    want = np.ones((2, 3, 4))
    got = want.copy()
    got[1, 2, 0] = 3.0
    assert worst_row(raw(got), raw(want)) == ((1, 2), 1.0)  # sqrt(2*2) / sqrt(4)
    assert worst_row(raw([1.0]), raw([2.0])) is None
