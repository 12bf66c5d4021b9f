"""Screening: trivial candidates are caught, honest bounds are not."""

import numpy as np
import pytest
from tensors import integers, raw

from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.screen import Draw, hold_predicates, hold_reference, screen
from tilefoundry.judge.stated import Predicate

RNG = np.random.default_rng(4)
NORMAL = RNG.standard_normal((64, 128))


def stated(*words):
    """``("max_abs", 0.1)`` and kin as predicates."""
    keys = {"cosine": ("min",), "allclose": ("atol", "rtol"), "equal": (), "nan_inf": ()}
    return [Predicate(fn, dict(zip(keys.get(fn, ("max",)), v, strict=True))) for fn, *v in words]


def refusal(predicates, reference, **inputs):
    with pytest.raises(Refusal) as caught:
        screen("output", predicates, [Draw(reference, inputs)])
    (diag,) = caught.value.diags
    return diag


def accepted(predicates, reference, **inputs):
    return screen("output", predicates, [Draw(reference, inputs)])


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_honest_bounds_pass(dtype):
    reference = raw(NORMAL, dtype)
    assert accepted(stated(("equal",)), reference) == []
    assert accepted(stated(("ulp", 1)), reference) == []
    if dtype in ("f64", "f32", "f16", "bf16"):
        eps = {"f64": 2**-52, "f32": 2**-23, "f16": 2**-10, "bf16": 2**-7}[dtype]
        assert accepted(stated(("allclose", eps / 4, eps)), reference) == []
        # The largest values lie in [2, 4), where the spacing is twice that at 1.
        assert accepted(stated(("max_abs", 2 * eps)), reference) == []


@pytest.mark.parametrize("predicates, trivial, bound", [
    # 1.01 times the reference is off by 1 % of its norm, and by 1 % of its largest element.
    (stated(("rel_l2", 0.011)), "scaled by 1.01", "rel_l2 with --max below 0.01"),
    (stated(("max_rel", 0.011)), "scaled by 1.01", "max_rel with --max below 0.01"),
    (stated(("allclose", 1e-5, 0.016)), "scaled by 1.01", "--rtol below 0.01"),
    (stated(("allclose", 0.5, 0.0)), "scaled by 1.01", "--atol below 0.0"),
    (stated(("rel_l2", 1.1)), "zeros", "rel_l2 with --max below 1"),
    (stated(("rel_l2", 1.1), ("cosine", 0.9)), "scaled by 1.01", "rel_l2"),
])  # fmt: skip
def test_loose_predicates_name_the_candidate_and_the_bound(predicates, trivial, bound):
    diag = refusal(predicates, raw(NORMAL))
    assert diag.code == "check-predicate-loose"
    assert trivial in diag.says and bound in diag.expected


def test_one_wrong_element_hides_in_the_norm_of_many():
    # Turning the sign of the largest of 8192 normal values moves the norm by about
    # 2 * 4 / sqrt(8192) = 0.09; a bound of 0.005 sees it, on 2^20 values it would not.
    assert accepted(stated(("rel_l2", 0.005)), raw(NORMAL)) == []
    many = RNG.standard_normal(1 << 21)
    many[0] = 5.0
    reference = raw(many)
    diag = refusal(stated(("rel_l2", 0.008)), reference)
    assert "largest element wrong" in diag.says
    share = 2 * np.abs(many).max() / np.linalg.norm(many)
    assert f"{share:.3g}" in diag.expected
    assert accepted(stated(("rel_l2", 0.008), ("max_abs", 0.01)), reference) == []


def test_an_input_that_nearly_is_the_answer():
    x = raw(NORMAL)
    reference = raw(NORMAL + 1e-3 * RNG.standard_normal(NORMAL.shape))
    diag = refusal(stated(("max_abs", 0.008)), reference, x=x)
    assert "input x" in diag.says


def test_an_input_that_is_the_answer_is_noted():
    x = raw(NORMAL)
    assert accepted(stated(("equal",)), x, x=x) == ["equals input x: a copy of it is right"]


def test_the_mean_and_the_shift():
    # A large mean with little variation: scaled is excluded, the mean is not.
    reference = raw(100 + 0.1 * NORMAL)
    diag = refusal(stated(("max_abs", 0.5)), reference)
    assert "mean" in diag.says
    diag = refusal(stated(("max_abs", 0.15)), reference)
    assert "shifted" in diag.says


def test_integers_and_narrow_floats():
    for dtype, words in (("i32", [("max_abs", 0)]), ("bool", [("equal",), ("max_abs", 1)]),
                         ("fp8e4m3", [("allclose", 0.0, 0.07)])):  # fmt: skip
        with pytest.raises(Refusal, match="check-predicate-dtype"):
            hold_predicates("output", stated(*words), DTYPES[dtype])
    hold_predicates("output", stated(("equal",)), DTYPES["i32"])
    hold_predicates("output", stated(("ulp", 1), ("rel_l2", 0.05)), DTYPES["fp8e4m3"])


def test_blind_predicates_are_never_enough():
    for words in ([("cosine", 0.999)], [("nan_inf",)], [("cosine", 0.999), ("nan_inf",)]):
        with pytest.raises(Refusal, match="check-predicate-blind"):
            hold_predicates("output", stated(*words), DTYPES["f32"])
    hold_predicates("output", stated(("cosine", 0.999), ("max_abs", 0.1)), DTYPES["f32"])


def test_constant_references():
    for reference in (raw(np.zeros((4, 4))), raw(np.full((4, 4), 2.5)), integers([7, 7]), raw(0.0)):
        diag = refusal(stated(("equal",)), reference)
        assert diag.code == "check-reference-constant"
    # One element is compared as it is; so are constants that differ from draw to draw.
    assert accepted(stated(("equal",)), raw(3.0)) == []
    draws = [Draw(integers([7, 7]), {}), Draw(integers([5, 5]), {})]
    assert screen("output", stated(("equal",)), draws) == []
    assert accepted(stated(("equal",)), raw(np.zeros((0, 4)))) != []


def test_references_that_are_not_finite():
    with_nan, with_inf = raw([1.0, np.nan]), raw([1.0, np.inf])
    with pytest.raises(Refusal, match="check-reference-nan"):
        hold_reference("output", stated(("equal",)), with_nan)
    with pytest.raises(Refusal, match="check-reference-nan"):
        hold_reference("output", stated(("max_abs", 0.1)), with_inf)
    hold_reference("output", stated(("equal",)), with_inf)
    hold_reference("output", stated(("equal",), ("nan_inf",)), with_nan)


@pytest.mark.parametrize("words", [[("equal",)], [("ulp", 1)], [("max_abs", 1e-3), ("nan_inf",)]])
def test_screening_with_infinities(words):
    values = NORMAL.copy()
    values[3, 5] = np.inf
    assert accepted(stated(*words), raw(values, "f16")) == []


def test_rows_in_another_order():
    # Rows that are nearly alike, of values far apart.
    rows = NORMAL[:1] + 1e-4 * RNG.standard_normal((64, 1))
    step = np.abs(rows - np.roll(rows, 1, axis=0)).max()
    diag = refusal(stated(("max_abs", 2 * step)), raw(rows))
    assert "rows moved by one" in diag.says and f"{step:.3g}" in diag.expected
    assert accepted(stated(("max_abs", step / 2)), raw(rows)) == []


def test_results_on_other_and_on_coarser_inputs():
    reference = raw(1000 + NORMAL)
    near = raw(1000 + NORMAL + 1e-4 * RNG.standard_normal(NORMAL.shape))
    predicates = stated(("max_abs", 1e-3))
    assert screen("output", predicates, [Draw(reference, {}, {})]) == []
    with pytest.raises(Refusal) as caught:
        screen("output", predicates, [Draw(reference, {}, {"the result on other inputs": near})])
    assert "the result on other inputs would pass" in caught.value.diags[0].says
    # Equal everywhere: right on those inputs too, and so no evidence against the predicates.
    assert screen("output", predicates, [Draw(reference, {}, {"it": reference})]) == []


def test_a_reference_is_constant_to_its_last_element():
    for value in (0.0, -0.0, 3.0):
        whole = np.full(1 << 17, value)
        assert refusal(stated(("equal",)), raw(whole)).code == "check-reference-constant"
        whole[-1] = 1.0
        assert accepted(stated(("equal",)), raw(whole)) == []
