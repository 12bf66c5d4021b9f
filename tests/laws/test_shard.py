"""Sharded layouts by enumeration: who holds which element, and how many."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilefoundry.diag import Refusal
from tilefoundry.ir.expr import Sym
from tilefoundry.ir.mesh import Axis, Mesh, arrange, narrow, rearrange
from tilefoundry.ir.shard import B, Digit, P, S, ShardLayout, from_digits, split_mode
from tilefoundry.ir.spec import Split, Tag, Tagged, from_record, layout_from
from tilefoundry.layout import Layout, Swizzle

few = settings(max_examples=100, deadline=None)
MESH = Mesh(arrange("cta", (2, 4, 32), ("x", "y", "t")))
X, Y, T = MESH.axes
THREADS = Mesh(arrange("thread", (3, 128), ("warpgroup", "participant")), (("thread", 384),))
COMPUTE = rearrange(
    narrow(THREADS, (slice(1, 3),)), (2, 4, 8, 4), ("group", "warp", "lane8", "lane4")
)
GROUP, WARP, LANE8, LANE4 = COMPUTE.axes


def elements(shape):
    return itertools.product(*(range(e) for e in shape))


def mode_digits(modes, index, shape):
    """The element's coordinate on each flat mode: both sides walked row-major."""
    at = 0
    for i, extent in zip(index, shape, strict=True):
        at = at * extent + i
    out = []
    for extent in reversed(modes):
        at, digit = divmod(at, extent)
        out.insert(0, digit)
    return out


@st.composite
def sharded(draw):
    """(mesh, logical shape, layout): modes per axis, some split over distinct mesh axes."""
    extents = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    names = tuple("abc"[: len(extents)])
    mesh = Mesh(arrange("cta", tuple(extents), names))
    left = list(draw(st.permutations(mesh.axes)))
    tops, axes, shape = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        group = []
        for _ in range(draw(st.integers(1, 3))):
            axis = left.pop() if left and draw(st.booleans()) else None
            group.append(axis.extent if axis else draw(st.integers(1, 3)))
            axes.append(axis)
        shape.append(math.prod(group))
        tops.append(group)
    flat = draw(st.booleans())
    if flat:
        written = tuple(m for g in tops for m in g)
    else:
        written = tuple(g[0] if len(g) == 1 else tuple(g) for g in tops)
    return mesh, tuple(shape), ShardLayout(written, axes=tuple(axes))


@few
@given(sharded())
def test_digits_say_which_unit_holds_an_element(case):
    _, shape, layout = case
    digits = layout.digits(shape)
    assert {d.axis for d in digits} == set(layout.split_axes)
    for index in elements(shape):
        want = dict(zip(layout.axes, mode_digits(layout.modes, index, shape), strict=True))
        for d in digits:
            assert index[d.dim] // d.inner % d.axis.extent == want[d.axis]


@few
@given(sharded())
def test_each_unit_holds_its_local_shape(case):
    mesh, shape, layout = case
    digits = layout.digits(shape)
    local = layout.local(shape)
    free = math.prod(a.extent for a in mesh.axes if a not in layout.split_axes)
    held = 0
    for at in mesh.coordinates():
        mine = [
            i
            for i in elements(shape)
            if all(i[d.dim] // d.inner % d.axis.extent == at[d.axis] for d in digits)
        ]
        assert len(mine) == math.prod(local)
        for dim, extent in enumerate(local):
            assert len({i[dim] for i in mine}) == (extent if mine else 0)
        held += len(mine)
    assert held == math.prod(shape) * free


@few
@given(sharded())
def test_from_digits_keeps_who_holds_what(case):
    _, shape, layout = case
    digits = tuple(d for d in layout.digits(shape) if d.axis.extent > 1)
    again = from_digits(shape, digits)
    assert set(again.digits(shape)) == set(digits)
    assert math.prod(again.local(shape)) == math.prod(layout.local(shape))
    assert math.prod(again.modes) == math.prod(shape)


@few
@given(sharded())
def test_record_and_tuple_form_are_one(case):
    mesh, _, layout = case
    attrs = layout.attrs(mesh.axes)
    bare = layout_from(layout.shape if len(layout.shape) != 2 else (layout.shape, None))
    assert from_record(bare, attrs, mesh) == layout
    for axis, attr in zip(mesh.axes, attrs, strict=True):
        assert attr == (S(layout.axes.index(axis)) if axis in layout.axes else B())


@few
@given(sharded())
def test_groups_multiply_to_the_axes(case):
    _, shape, layout = case
    groups = layout.groups(shape)
    assert [m for g in groups for m in g] == list(range(len(layout.modes)))
    assert [math.prod(layout.modes[m] for m in g) for g in groups] == list(shape)


def test_a_mode_that_straddles_two_axes_is_refused():
    for modes, shape in (((4, 6), (8, 3)), ((6, 4), (4, 6)), ((8,), (2, 4)), ((2, 2, 3), (4, 2))):
        with pytest.raises(Refusal) as refused:
            ShardLayout(modes, axes=(None,) * len(modes)).groups(shape)
        assert [d.code for d in refused.value.diags] == ["layout-shape"]


def test_groups_of_flat_and_nested_modes():
    flat = ShardLayout((2, 4, 2, 8, 32, 4, 2), axes=(None,) * 7)
    assert flat.groups((128, 256)) == (range(4), range(4, 7))
    nested = ShardLayout(((2, 4), (3, 5)), axes=(None,) * 4)
    assert nested.groups((8, 15)) == (range(2), range(2, 4))
    assert nested.groups((2, 4, 15)) == (range(1), range(1, 2), range(2, 4))
    ones = ShardLayout((1, 8, 1), axes=(None,) * 3)
    assert [len(g) for g in ones.groups((1, 8))] == [1, 2]


# Splits as written


def test_factoring_an_extent():
    eight = Axis("cta", "x", 8, 1)
    assert split_mode(4096, eight) == (8, 512)
    assert split_mode(8, eight) == (8,)
    layout = layout_from((Split(4096, eight),))
    assert layout.modes == (8, 512)
    assert layout.axes == (eight, None)
    assert layout.local((4096,)) == (512,)


def test_factoring_several():
    layout = layout_from((Split(2, X), Split(12, Y), Split(128, T)))
    assert layout.modes == (2, 4, 3, 32, 4)
    assert layout.axes == (X, Y, None, T, None)
    assert layout.local((2, 12, 128)) == (1, 3, 4)
    assert math.prod(layout.local((2, 12, 128))) == 12


@given(st.integers(1, 64), st.integers(1, 9))
def test_a_split_divides_or_names_the_nearest(extent, units):
    axis = Axis("cta", "x", units, 1)
    if extent % units == 0:
        assert math.prod(split_mode(extent, axis)) == extent
        return
    with pytest.raises(Refusal) as refused:
        split_mode(extent, axis)
    (diag,) = refused.value.diags
    assert diag.code == "shard-indivisible"
    near = [n for n in (extent // units * units, -(-extent // units) * units) if n]
    assert str(dict(diag.fields)["nearest"]) == " or ".join(map(str, near))


def test_an_open_extent_divides_by_its_form():
    n = Sym("n", 1).expr()
    axis = Axis("cta", "x", 4, 1)
    assert split_mode(8 * n, axis) == (4, 2 * n)
    with pytest.raises(Refusal):
        split_mode(n, axis)


def test_strides_of_a_factored_split():
    eight = Axis("cta", "x", 8, 1)
    layout = layout_from(((Split(32, eight), 16), (1, 32)))
    assert (layout.shape, layout.stride) == (((8, 4), 16), ((4, 1), 32))


def test_tags_and_states():
    base = (Split(8, Y), 16)
    tagged = Tagged(base, (Tag(None, B()), Tag(X, P("sum"))))
    layout = layout_from(tagged)
    assert layout.partial == ((X, "sum"),)
    assert layout.attrs((X, Y, T)) == (P("sum"), S(0), B())
    assert not layout.is_plain
    assert layout_from((8, 16)).is_plain
    assert not layout_from(((8, 16), (1, 8))).is_plain
    twice = Tagged(base, (Tag(Y, P("sum")),))
    with pytest.raises(Refusal) as refused:
        layout_from(twice)
    assert [d.code for d in refused.value.diags] == ["layout-axis-twice"]


def test_default_strides_can_be_said():
    assert layout_from((((2, 8), (4, 16)), None)) == layout_from(Layout(((2, 8), (4, 16))))
    assert layout_from(((2, 8), (4, 16))).strides == (4, 16)  # two tuples: shape and strides


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ((8, 16), "(8, 16)"),
        ((Split(8, Y), 16), "((4 @ y, 2), 16)"),
        (((8, 16), (1, 8)), "((8, 16), (1, 8))"),
        ((((2, 8), (4, 16)), None), "(((2, 8), (4, 16)), None)"),
        (Tagged((8,), (Tag(X, P("max")),)), '(8,) @ {x @ P("max")}'),
        (Layout((8, 16)) | Swizzle(3, 4, 3), "(8, 16) | Swizzle(3, 4, 3)"),
    ],
)
def test_text(written, text):
    assert layout_from(written).text() == text


def test_overlapping_strides_are_refused():
    for shape, strides in (((4, 4), (1, 3)), ((2, 2, 2), (1, 1, 4)), ((3, 2), (2, 4))):
        with pytest.raises(Refusal) as refused:
            layout_from((shape, strides))
        assert [d.code for d in refused.value.diags] == ["layout-overlap"]
    assert layout_from(((2, 3), (3, 2))).modes == (2, 3)  # 0 2 4 3 5 7: no clash


# The accumulator of a warp-group matrix product, element by element

ACCUMULATOR = layout_from(
    (
        (Split(2, GROUP), Split(4, WARP), 2, Split(8, LANE8), 32, Split(4, LANE4), 2),
        (16384, 16, 8, 1, 512, 128, 64),
    )
)
TABLE = [  # row, column, thread, nominal tile address
    (0, 0, 128, 0),
    (0, 1, 128, 64),
    (8, 0, 128, 8),
    (1, 0, 132, 1),
    (0, 2, 129, 128),
    (0, 8, 128, 512),
    (9, 3, 133, 201),
    (16, 0, 160, 16),
    (64, 0, 256, 16384),
    (127, 255, 383, 32767),
]


def thread_of(row, col):
    at = {
        d.axis: (row, col)[d.dim] // d.inner % d.axis.extent for d in ACCUMULATOR.digits((128, 256))
    }
    return COMPUTE.offset("thread") + sum(c * axis.stride for axis, c in at.items())


@pytest.mark.parametrize(("row", "col", "thread", "nominal"), TABLE)
def test_accumulator_element(row, col, thread, nominal):
    assert thread_of(row, col) == thread
    assert ACCUMULATOR.layout()(row * 256 + col) == nominal


def test_accumulator_by_formula():
    """row = 64g + 16w + 8h + l8, col = 8c + 2 l4 + e; thread and address of each element."""
    held = {}
    seen = set()
    layout = ACCUMULATOR.layout()
    for row, col in elements((128, 256)):
        g, w, h, l8 = row // 64, row // 16 % 4, row // 8 % 2, row % 8
        thread = 128 + 128 * g + 32 * w + 4 * l8 + col // 2 % 4
        assert thread_of(row, col) == thread
        address = layout(row * 256 + col)
        assert address == 16384 * g + row % 64 + 64 * col
        register = col % 2 + 2 * h + 4 * (col // 8)
        held.setdefault(thread, set()).add(register)
        seen.add(address)
    assert seen == set(range(32768))
    assert held == {t: set(range(128)) for t in range(128, 384)}


def test_accumulator_shape_of_one_thread():
    assert ACCUMULATOR.local((128, 256)) == (2, 64)
    assert ACCUMULATOR.digits((128, 256)) == (
        Digit(GROUP, 0, 64),
        Digit(WARP, 0, 16),
        Digit(LANE8, 0, 1),
        Digit(LANE4, 1, 2),
    )
