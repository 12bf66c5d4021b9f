"""Meshes against lists of unit numbers: slices, re-arrangements, scopes."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilefoundry.diag import Refusal
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.mesh import Axis, Coord, Mesh, arrange, enter, narrow, rearrange

NAMES = "abcdef"
ORDER = ("gpu", "cluster", "cta", "thread")
THREADS = Mesh(arrange("thread", (3, 128), ("warpgroup", "participant")), (("thread", 384),))
few = settings(max_examples=100, deadline=None)


def shape_of(mesh):
    return tuple(a.extent for a in mesh.axes)


def strides_of(mesh):
    return tuple(a.stride for a in mesh.axes)


def numbers(shape, strides, offset=0):
    """Unit numbers as an array: offset + sum of coordinate times stride."""
    out = np.full(shape, offset)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(extent) * stride
        out += steps.reshape([-1 if n == axis else 1 for n in range(len(shape))])
    return out


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@st.composite
def meshes(draw):
    """A one-level mesh of disjoint units, its strides a permuted and padded row-major."""
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    step = draw(st.integers(1, 3))
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + draw(st.integers(0, 2))
    offset = draw(st.integers(0, 7))
    return Mesh(arrange("thread", shape, tuple(NAMES[: len(shape)]), tuple(strides), offset))


@st.composite
def indices(draw, shape):
    out = []
    for extent in shape[: draw(st.integers(1, len(shape)))]:
        if draw(st.booleans()):
            out.append(draw(st.integers(-extent, extent - 1)))
        else:
            start = draw(st.integers(0, extent - 1))
            stop = draw(st.integers(start + 1, extent))
            ends = draw(st.sampled_from([(start, stop), (None, stop), (start, None)]))
            out.append(slice(*ends))
    return tuple(out)


@few
@given(st.data(), meshes())
def test_a_slice_has_the_units_that_the_array_slice_has(data, mesh):
    index = data.draw(indices(shape_of(mesh)))
    want = numbers(shape_of(mesh), strides_of(mesh), mesh.offset("thread"))[index]
    found = narrow(mesh, index)
    assert found.units("thread") == want.reshape(-1).tolist()
    kept = [a.name for a in found.axes]
    assert kept == [a.name for a in mesh.axes if a.name in kept]


@few
@given(st.data(), meshes())
def test_a_sliced_mesh_can_be_sliced_again(data, mesh):
    first = narrow(mesh, data.draw(indices(shape_of(mesh))))
    index = data.draw(indices(shape_of(first)))
    want = np.array(first.units("thread")).reshape(shape_of(first))[index]
    assert narrow(first, index).units("thread") == want.reshape(-1).tolist()


def test_levels_are_sliced_apart():
    cta = arrange("cta", (4, 2), ("x", "y"))
    mesh = Mesh((*cta, *arrange("thread", (3, 8), ("g", "p"))))
    found = narrow(mesh, (slice(1, 3), 1, 2, slice(4, None)))
    assert found.units("cta") == [3, 5]
    assert found.units("thread") == [20, 21, 22, 23]
    # a level whose axes are all fixed still names one unit
    one = narrow(mesh, (2, 1, slice(None), 0))
    assert one.units("cta") == [5]
    assert one.units("thread") == [0, 8, 16]
    assert one.levels == ("cta", "thread")


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ((3,), "mesh-slice-range"),
        ((-4,), "mesh-slice-range"),
        ((slice(1, 1),), "mesh-slice-range"),
        ((slice(0, 4),), "mesh-slice-range"),
        ((slice(0, 3, 2),), "mesh-slice-range"),
        ((0, 0, 0), "mesh-slice-rank"),
    ],
)
def test_slices_outside_are_refused(index, code):
    with pytest.raises(Refusal) as refused:
        narrow(THREADS, index)
    assert [d.code for d in refused.value.diags] == [code]


def factorings(n):
    """Shapes of up to three axes with n units."""
    return [
        tuple(x for x in (a, b, n // (a * b)))
        for a in range(1, n + 1)
        for b in range(1, n + 1)
        if n % a == 0 and n // a % b == 0
    ]


@few
@given(st.data(), meshes())
def test_a_rearrangement_walks_the_source_in_order(data, mesh):
    source = mesh.units("thread")
    shape = data.draw(st.sampled_from(factorings(len(source))))
    names = ("p", "q", "r")
    strides = None
    if data.draw(st.booleans()):
        strides, step = [0, 0, 0], 1
        for axis in data.draw(st.permutations(range(3))):
            strides[axis], step = step, step * shape[axis]
    row_major = tuple(math.prod(shape[n + 1 :]) for n in range(3))
    walk = numbers(shape, strides or row_major).reshape(-1)
    want = [source[w] for w in walk]
    try:
        found = rearrange(mesh, shape, names, tuple(strides) if strides else None)
    except Refusal as refusal:
        assert [d.code for d in refusal.diags] == ["mesh-rearrange-straddles"]
        array = np.array(want).reshape(shape)
        assert not affine(array)
        return
    assert found.units("thread") == want
    assert shape_of(found) == shape


def affine(array):
    """Whether each axis of the array has one stride."""
    return all(len(np.unique(np.diff(array, axis=n))) <= 1 for n in range(array.ndim))


def test_a_rearrangement_of_several_levels_or_another_size_is_refused():
    two = Mesh((*arrange("cta", (4,), ("x",)), *arrange("thread", (8,), ("t",))))
    for mesh, shape, code in (
        (two, (32,), "mesh-rearrange-levels"),
        (THREADS, (3, 100), "mesh-rearrange-size"),
    ):
        with pytest.raises(Refusal) as refused:
            rearrange(mesh, shape, tuple(NAMES[: len(shape)]))
        assert [d.code for d in refused.value.diags] == [code]


def test_worked_numbers():
    assert (shape_of(THREADS), strides_of(THREADS)) == ((3, 128), (128, 1))
    compute = narrow(THREADS, (slice(1, 3), slice(None)))
    assert (shape_of(compute), strides_of(compute)) == ((2, 128), (128, 1))
    assert compute.offset("thread") == 128
    loader = narrow(THREADS, (0, slice(None, 32)))
    assert loader.units("thread") == list(range(32))
    lanes = rearrange(compute, (2, 4, 8, 4), ("group", "warp", "lane8", "lane4"))
    assert (shape_of(lanes), strides_of(lanes)) == ((2, 4, 8, 4), (128, 32, 4, 1))
    assert lanes.offset("thread") == 128
    assert lanes.units("thread") == list(range(128, 384))


@few
@given(meshes())
def test_units_are_counted_and_enumerated(mesh):
    units = mesh.units("thread")
    assert mesh.count() == mesh.count("thread") == len(units) == len(set(units))
    offset = mesh.offset("thread")
    walked = [offset + sum(c * a.stride for a, c in at.items()) for at in mesh.coordinates()]
    assert walked == units


def test_coordinates_are_one_symbol_per_axis():
    again = Mesh(THREADS.axes)
    assert THREADS.coordinate("participant", "threads") == again.coordinate("participant", "t")
    assert THREADS.coordinate("nothing") is None
    x = THREADS.coordinate("participant")
    assert x is not None and bounds(x) == (0, 127)
    narrowed = narrow(THREADS, (slice(1, 3),)).coordinate("participant")
    assert narrowed != x  # the same threads counted from another place
    assert x + narrowed == narrowed + x


def test_namesake_axes_are_told_apart():
    a, b = Axis("thread", "x", 4, 1), Axis("thread", "x", 4, 1, offset=4)
    one, two = Coord("x", 0, 3, axis=a), Coord("x", 0, 3, axis=b)
    assert one != two and one == Coord("x", 0, 3, axis=Axis("thread", "x", 4, 1))
    assert one.expr() * 2 + two.expr() == two.expr() + one.expr() * 2


# Scopes


def test_a_scope_on_a_new_level_appends():
    cta = Mesh(arrange("cta", (4,), ("x",)), (("cta", 4),))
    inside = enter(enter(Mesh(), cta, ORDER), THREADS, ORDER)
    assert [a.name for a in inside.axes] == ["x", "warpgroup", "participant"]
    assert dict(inside.sizes) == {"cta": 4, "thread": 384}


def test_a_scope_on_the_same_level_narrows():
    inside = enter(THREADS, narrow(THREADS, (1,)), ORDER)
    assert inside.units("thread") == list(range(128, 256))
    deeper = narrow(inside, (slice(64, None),))
    assert enter(inside, deeper, ORDER).units("thread") == list(range(192, 256))


def test_scopes_that_leave_the_units_in_force_are_refused():
    cta = Mesh(arrange("cta", (4,), ("x",)))
    cases = [
        (narrow(THREADS, (1,)), narrow(THREADS, (2,)), "mesh-scope-outside"),
        (THREADS, cta, "mesh-scope-level"),
        (enter(cta, THREADS, ORDER), narrow(cta, (slice(0, 2),)), "mesh-scope-level"),
    ]
    for outer, inner, code in cases:
        with pytest.raises(Refusal) as refused:
            enter(outer, inner, ORDER)
        assert [d.code for d in refused.value.diags] == [code]


@few
@given(st.data(), meshes(), meshes())
def test_a_scope_is_accepted_exactly_if_its_units_lie_inside(data, outer, inner):
    assume(data.draw(st.booleans()) or set(inner.units("thread")) <= set(outer.units("thread")))
    inside = set(inner.units("thread")) <= set(outer.units("thread"))
    try:
        found = enter(outer, inner, ORDER)
    except Refusal:
        assert not inside
        return
    assert inside
    assert found.axes == inner.axes


def test_shown_as_written():
    text = repr(narrow(THREADS, (slice(1, 3),)))
    assert text == (
        'Mesh((Topology("thread", 384),), layout=(2, 128) + 128, '
        'names=("warpgroup", "participant"))'
    )


def test_row_major_unless_strides_are_given():
    for shape in itertools.product((1, 2, 3), repeat=3):
        mesh = Mesh(arrange("cta", shape, ("x", "y", "z")))
        assert mesh.units("cta") == list(range(math.prod(shape)))
