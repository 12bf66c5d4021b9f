"""Windows of many units against Python's slices, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import windows
from tilefoundry.evaluate.owners import Digit, Signs
from tilefoundry.evaluate.write import Writes, unite
from tilefoundry.ir.dtype import F32
from tilefoundry.ir.node import PARAM, Node
from tilefoundry.ir.types import TensorType

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool]
FEW = settings(max_examples=150, deadline=None)


@st.composite
def reads(draw):
    """A tensor, with rows or without, and a window of it for each of some units."""
    rank = draw(st.integers(0, 3))
    extents = [draw(st.integers(1, 6)) for _ in range(rank)]
    count = draw(st.integers(1, 5))
    shared = draw(st.sampled_from(["one", "each", "picked"]))
    rows = None if shared == "one" else count if shared == "each" else draw(st.integers(1, 4))
    lead = () if rows is None else (rows,)
    x = torch.arange(int(np.prod([*lead, *extents]))).reshape([*lead, *extents]) * 7 % 120
    x = x.to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()) and rank > 1:
        x = x.transpose(-1, -2)  # strides that are not row-major
        extents[-2:] = extents[:-3:-1]
    if draw(st.booleans()) and rows is not None:
        x = x[:1].expand(x.shape)  # one row for all
    starts, sizes, strides = [], [], []
    for extent in extents:
        size = draw(st.integers(0, extent))
        stride = draw(st.integers(1, 3))
        stride = stride if (size - 1) * stride < extent else 1
        last = extent - ((size - 1) * stride + 1 if size else 0)
        if draw(st.booleans()):
            starts.append(draw(st.integers(0, last)))
        else:
            starts.append([draw(st.integers(0, last)) for _ in range(count)])
        sizes.append(size)
        strides.append(stride)
    pick = [draw(st.integers(0, rows - 1)) for _ in range(count)] if shared == "picked" else None
    return x, shared, pick, starts, sizes, strides, count


@given(reads())
@FEW
def test_reads(drawn):
    x, shared, pick, starts, sizes, strides, count = drawn
    rows = None if shared == "one" else windows.EACH if shared == "each" else torch.tensor(pick)
    given_starts = [s if isinstance(s, int) else torch.tensor(s) for s in starts]
    got = windows.read(x, rows, given_starts, sizes, strides)
    if got.dim() == len(sizes):
        assert rows is None
        got = got.expand(count, *got.shape)
    for unit in range(count):
        at = [s if isinstance(s, int) else s[unit] for s in starts]
        box = tuple(
            slice(s, s + (n - 1) * d + 1 if n else s, d)
            for s, n, d in zip(at, sizes, strides, strict=True)
        )
        source = x if rows is None else x[unit] if pick is None else x[pick[unit]]
        assert got[unit].dtype == x.dtype
        assert got[unit].tolist() == source[box].tolist()


@st.composite
def inserts(draw):
    """A destination, and a tile of small values that each unit writes into it."""
    rank = draw(st.integers(1, 3))
    extents = [draw(st.integers(1, 6)) for _ in range(rank)]
    count = draw(st.integers(1, 4))
    rows = draw(st.sampled_from([None, 2]))
    sizes = [draw(st.integers(0, e)) for e in extents]
    on_grid = draw(st.booleans())
    offsets = []
    for extent, size in zip(extents, sizes, strict=True):
        step = size if on_grid and size else 1
        offset = st.integers(0, (extent - size) // step).map(lambda n, step=step: n * step)
        single = draw(st.booleans())
        offsets.append(draw(offset) if single else [draw(offset) for _ in range(count)])
    lead = () if rows is None else (rows,)
    dst = torch.zeros(*lead, *extents).to(draw(st.sampled_from(DTYPES)))
    value = st.integers(0, 1) if draw(st.booleans()) else st.just(1)
    size = int(np.prod(sizes))
    flat = [[draw(value) for _ in range(size)] for _ in range(count)]
    tiles = torch.tensor(flat).reshape(count, *sizes).to(dst.dtype)
    pick = None if rows is None else [draw(st.integers(0, rows - 1)) for _ in range(count)]
    owner = None
    if rows is None and draw(st.booleans()):
        held = [draw(st.integers(0, count)) for _ in range(int(np.prod(extents)))]
        owner = torch.tensor(held, dtype=torch.int32).reshape(extents)
    return dst, tiles, pick, offsets, owner


def signs(count):
    """Unit u of a single axis signs with u."""
    own = np.arange(1, count + 1)
    return Signs(own, [Digit(1, count + 1, own)])


def by_hand(dst, tiles, pick, offsets, owner):
    """Unit by unit and element by element: destination and owners, or where two disagree."""
    out = dst.clone()
    claim = torch.zeros(dst.shape, dtype=torch.int32)
    signed = claim.clone() if owner is None else owner.clone()
    for unit, tile in enumerate(tiles, 1):
        start = [o if isinstance(o, int) else o[unit - 1] for o in offsets]
        lead = () if pick is None else (pick[unit - 1],)
        first, lost = None, False
        for at in np.ndindex(*tile.shape):
            place = tuple(s + i for s, i in zip(start, at, strict=True))
            index = (*lead, *place)
            several = int(claim[index]) != 0
            if several or int(signed[index]) not in (0, unit):
                first = first or place
                lost |= out[index].item() != tile[at].item()
            claim[index] = unit
            signed[index] = len(tiles) + 1 if several else unit
            out[index] = tile[at]
        if lost:
            return first
    return out, signed if owner is not None else None


@given(inserts(), st.booleans())
@FEW
def test_writes(drawn, listed):
    dst, tiles, pick, offsets, owner = drawn
    before = dst.clone(), None if owner is None else owner.clone()
    node = Node(PARAM, (), {}, TensorType((), F32), name="out")
    writes = Writes(
        np.arange(1, len(tiles) + 1),
        None if pick is None else np.array(pick),
        [o if isinstance(o, int) else np.array(o) for o in offsets],
        list(tiles) if listed else tiles,
        None if owner is None else signs(len(tiles)),
    )
    into = list(dst) if listed and pick is not None else dst
    expected = by_hand(dst, tiles, pick, offsets, owner)
    try:
        out, owners = unite(into, writes, owner, node)
    except Refusal as refusal:
        (found,) = refusal.diags
        assert found.code == "write-overlap"
        assert len(expected) != 2 or not isinstance(expected[0], torch.Tensor)
        if pick is None:
            assert found.fields["place"] == expected
        return
    assert isinstance(expected[0], torch.Tensor), expected
    out = torch.stack([o.float() for o in out]) if isinstance(out, list) else out
    assert out.float().tolist() == expected[0].float().tolist()
    assert (owners is None) == (owner is None)
    if owner is not None:
        assert owners.tolist() == expected[1].tolist()
    assert torch.equal(dst.float(), before[0].float())  # values are immutable
    assert owner is None or torch.equal(owner, before[1])


def test_equal_means_equal_to_a_nan_too():
    dst = torch.zeros(3)
    node = Node(PARAM, (), {}, TensorType((), F32), name="out")
    tiles = torch.tensor([[float("nan"), 1.0], [1.0, 2.0]])
    writes = Writes(np.array([1, 2]), None, [np.array([0, 1])], tiles)
    out, _ = unite(dst, writes, None, node)
    assert out.isnan().tolist() == [True, False, False] and out[1:].tolist() == [1.0, 2.0]
    same = Writes(np.array([1, 2]), None, [np.array([0, 0])], tiles[:1].expand(2, 2))
    assert unite(dst, same, None, node)[0].tolist()[1:] == [1.0, 0.0]


@pytest.mark.parametrize("start", [-1, 2])
def test_the_unit_that_leaves_the_destination_is_named(start):
    node = Node(PARAM, (), {}, TensorType((), F32), name="out")
    writes = Writes(np.array([1, 2]), None, [np.array([0, start])], torch.ones(2, 2))
    with pytest.raises(Refusal) as caught:
        unite(torch.zeros(3), writes, None, node)
    (found,) = caught.value.diags
    assert (found.code, found.fields["start"]) == ("slice-range", start)
