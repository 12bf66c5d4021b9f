"""Random tensors: streams differ, values vary, indices cover their axis."""

import numpy as np

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.draw import draw, draw_weight, stream


def values(name, seed=1, shape=(200, 500), **kw):
    return draw(stream(seed, "input", "x"), DTYPES[name], shape, **kw).values()


def test_streams_are_independent_and_repeat():
    f32 = DTYPES["f32"]
    a, b, again = (
        draw(stream(7, "input", name), f32, (100000,)).values() for name in ("a", "b", "a")
    )
    assert np.array_equal(a, again) and not np.array_equal(a, b)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02  # six deviations of 1/sqrt(n)
    assert not np.array_equal(a, draw(stream(8, "input", "a"), f32, (100000,)).values())


def test_floats_hold_several_classes_of_values():
    found = values("f16")
    assert abs(found.mean()) < 0.02 and 0.9 < found.std() < 1.1
    zeros = found == 0
    assert zeros.any() and np.signbit(found[zeros]).any() and not np.signbit(found[zeros]).all()
    assert (found == 4.0).any() and ((np.abs(found) > 0) & (np.abs(found) < 2**-10)).any()
    assert np.isfinite(found).all()


def test_indices_cover_their_axis():
    found = values("i64", index=(0, 1000))
    assert set(found.tolist()) == set(range(1000))


def test_integers_that_are_not_indices_cover_their_type():
    assert set(values("u8").tolist()) == set(range(256))
    assert set(values("i8").tolist()) == set(range(-128, 128))
    assert set(values("bool").tolist()) == {0, 1}


def test_weights_keep_products_their_size():
    matrix = draw_weight(stream(1, "weight", "w"), DTYPES["f32"], (300, 400)).values()
    assert abs(matrix.std() * 20 - 1) < 0.02  # 1 / sqrt(400)
    norm = draw_weight(stream(1, "weight", "n"), DTYPES["f32"], (4000,)).values()
    assert abs(norm.mean() - 1) < 0.02
