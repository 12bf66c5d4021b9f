"""Tensors in files: where elements lie, what counts as changed."""

import numpy as np
import pytest
import torch
from tensors import raw

from tilefoundry.judge.image import FILL, GUARD, Image

VALUES = np.arange(24.0).reshape(2, 3, 4)
STRIDES = {
    "plain": (12, 4, 1), "offset": (12, 4, 1), "padded": (21, 7, 1), "strided": (24, 8, 2),
    "transposed": (1, 2, 6),
}  # fmt: skip


@pytest.mark.parametrize("arrangement", STRIDES)
def test_elements_lie_where_the_strides_say(arrangement):
    image = Image.of(raw(VALUES), arrangement)
    assert image.strides == STRIDES[arrangement]
    assert image.offset % 16 == (4 if arrangement == "offset" else 0)
    flat = torch.from_numpy(image.data[image.offset :].copy())
    flat = flat[: flat.numel() // 4 * 4].view(torch.float32)
    assert torch.as_strided(flat, (2, 3, 4), image.strides).tolist() == VALUES.tolist()
    assert (image.data[:GUARD] == FILL).all() and (image.data[-GUARD:] == FILL).all()


@pytest.mark.parametrize("arrangement", STRIDES)
def test_what_changed_is_named(arrangement):
    image = Image.of(raw(VALUES), arrangement)
    assert image.changed(image.data.copy()) == ""
    found = image.data.copy()
    Image(found, image.tensor, image.offset, image.strides).elements[1, 2, 3] = 7
    assert image.changed(found) == "elements"
    for place in (image.offset - 1, -GUARD, -1, 0):
        found = image.data.copy()
        found[place] ^= 1
        assert image.changed(found) == "guard"
    if arrangement in ("padded", "strided"):
        found = image.data.copy()
        found[image.offset + (4 * 4 if arrangement == "padded" else 4)] ^= 1  # a gap
        assert image.changed(found) == "guard"
    other = raw(VALUES + 1)
    found = image.data.copy()
    assert image.changed(found, other) == "elements"
    Image(found, image.tensor, image.offset, image.strides).elements[...] = VALUES + 1
    assert image.changed(found, other) == ""


def test_an_empty_tensor_and_a_scalar():
    empty, scalar = Image.of(raw(np.zeros((0, 4)))), Image.of(raw(3.0))
    assert empty.changed(empty.data.copy()) == "" and scalar.elements.tolist() == 3.0
