"""Sets of inputs and the order of calls; classes of values keep what bounds are stated for."""

import numpy as np
import pytest
import torch
from tensors import integers, raw

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.draw import draw, shuffled, stream
from tilefoundry.judge.inputs import (
    Drawn,
    coarse_inputs,
    neighbours,
    touched_inputs,
    turns,
)
from tilefoundry.judge.numbers import coarsened, stored
from tilefoundry.judge.signature import Open, Signature

RNG = np.random.default_rng(1)


def values(kind, dtype="f32", shape=(64, 256), seed=1):
    return draw(stream(seed, kind), DTYPES[dtype], shape, None, kind).values().reshape(shape)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "fp8e5m2"])
def test_every_class_keeps_the_scale(dtype):
    for kind in ("ordinary", "wide", "integers", "cancelling"):
        found = values(kind, dtype)
        assert np.isfinite(found).all()
        assert 0.5 < np.sqrt((found**2).mean()) < 1.6 and np.abs(found).max() < 8


@pytest.mark.parametrize("dtype, tiny, least", [
    ("f32", 2.0**-126, 2.0**-149), ("f16", 2.0**-14, 2.0**-24), ("bf16", 2.0**-126, 2.0**-133),
])  # fmt: skip
def test_wide_values_reach_the_subnormal_ones(dtype, tiny, least):
    found = np.abs(values("wide", dtype))
    subnormal = found[(found > 0) & (found < tiny)]
    assert subnormal.size and subnormal.min() < 64 * least


def test_whole_numbers_and_their_sums_are_exact():
    found = values("integers", "f16")
    assert set(np.unique(found)) == {-2.0, -1.0, 0.0, 1.0, 2.0}


def test_neighbours_cancel():
    found = values("cancelling")
    sums = [np.abs(found.take(range(0, n, 2), a) + found.take(range(1, n, 2), a)).max()
            for a, n in enumerate(found.shape)]  # fmt: skip
    assert min(sums) < 1e-5 < max(sums)


def test_special_values_are_few():
    found = values("special")
    assert np.isnan(found).sum() == 1 and np.isinf(found).sum() == 2


def test_indices_hold_both_ends():
    for seed in range(20):
        found = draw(stream(seed), DTYPES["i64"], (3,), (0, 10**6)).values()
        assert found.min() == 0 and found.max() == 10**6 - 1


def test_shuffled_floats_are_the_same_elements():
    for count in (100, 100_000):
        tensor = raw(RNG.standard_normal(count))
        found = shuffled(stream(1, "s"), tensor)
        assert sorted(found.values()) == sorted(tensor.values())
        assert (found.flat != tensor.flat).mean() > 0.9
    assert shuffled(stream(1), integers([3, 1, 2])).values().tolist() == [3, 1, 2]


def test_one_element_is_touched():
    given = {"x": raw(RNG.standard_normal((4, 4))), "at": integers([1, 2])}
    found = touched_inputs(3, given)
    assert found is not None and found.strict
    off = found.inputs["x"].flat != given["x"].flat
    assert off.sum() == 1 and found.inputs["at"] is given["at"]
    assert touched_inputs(3, {"at": integers([1, 2])}) is None
    assert touched_inputs(3, {"x": raw(np.ones(4))}) is None


@pytest.mark.parametrize("dtype, coarse", [("f32", "bfloat16"), ("f64", "float32")])
def test_coarser_values_are_torchs(dtype, coarse):
    source = torch.randn(1000, dtype=getattr(torch, DTYPES[dtype].torch))
    source[:3] = torch.tensor([float("inf"), float("nan"), -0.0])
    want = source.to(getattr(torch, coarse)).to(source.dtype)
    found = coarsened(source.numpy().view(stored(DTYPES[dtype])), DTYPES[dtype])
    assert found is not None
    assert np.array_equal(found, want.numpy(), equal_nan=True)
    assert coarsened(np.zeros(2, "<u2"), DTYPES["bf16"]) is None
    assert coarse_inputs({"x": raw([1.0, 2.0])}) is None  # nothing to round


def test_calls_come_in_an_order_that_the_seed_decides():
    draws = [Drawn(kind, {}) for kind in ("ordinary", "touched", "wide", "integers")]
    orders = set()
    for seed in range(30):
        made = turns(stream(seed), len(draws), False)
        assert [t.draw for t in made[:2]] == [0, 1] and made[1].same and not made[0].same
        assert sorted(t.draw for t in made) == [0, 0, 1, 2, 3]
        orders.add(tuple(t.draw for t in made))
    assert len(orders) == 6
    spread = turns(stream(1), len(draws), True)[len(made) :]
    assert {t.arrangement for t in spread} == {"offset", "padded", "strided", "transposed"}


def test_neighbours_stay_within_the_bounds():
    opens = (Open("n", 3, 64.0), Open("m", 1, 10.0))
    signature = Signature("", "f", (), (), opens, (), {}, ())
    for seed in range(40):
        found = neighbours(stream(seed), signature, [{"n": 16, "m": 10}])
        assert found[-1] == {"n": 3, "m": 1} and 2 <= len(found) <= 3
        assert all(3 <= f["n"] <= 64 and 1 <= f["m"] <= 10 for f in found)
        assert abs(found[0]["n"] - 16) in (1, 2) and {"n": 16, "m": 10} not in found
