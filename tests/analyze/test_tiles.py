"""Distinct tiles, sharing, footprints: against enumeration by plain Python loops."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tilefoundry.analyze.tiles import footprint, sharing

KB = 1024


def accesses(priced, name, way="read"):
    return [a for a in priced.accesses if a.home.name == name and a.move.way == way]


def test_optimal_first_step(case):
    priced = case("gemm_optimal").priced()
    (a,), (b,) = accesses(priced, "a"), accesses(priced, "b")
    # First wave: tasks 0..131. m = task % 16 (and 16 per group of 1088 tasks), n = task // 16.
    rows = Counter(t % 16 for t in range(132))
    columns = Counter(t // 16 for t in range(132))
    assert (len(rows), min(rows.values()), max(rows.values())) == (16, 8, 9)
    assert (len(columns), min(columns.values()), max(columns.values())) == (9, 4, 16)
    found = sharing(priced.program, a, 132)
    assert (found.tiles, found.least, found.most) == (16, 8, 9)
    assert found.tiles * a.size == 256 * KB
    found = sharing(priced.program, b, 132)
    assert (found.tiles, found.least, found.most) == (9, 4, 16)
    assert found.tiles * b.size == 288 * KB


def test_grid_first_step(case):
    priced = case("gemm_grid").priced()
    (a,), (b,) = accesses(priced, "a"), accesses(priced, "b")
    # CTAs 0..131 in launch order: row 0 whole (68), then 64 of row 1.
    found = sharing(priced.program, a, 132)
    assert (found.tiles, found.least, found.most) == (2, 64, 68)
    found = sharing(priced.program, b, 132)
    assert (found.tiles, found.least, found.most) == (68, 1, 2)


def test_optimal_footprint_is_each_matrix_once(case):
    priced = case("gemm_optimal").priced()
    for name, whole in (("a", 8192 * 5120 * 2), ("b", 5120 * 17408 * 2)):
        (access,) = accesses(priced, name)
        found = footprint(priced.program, access)
        assert (found.value, found.precision) == (whole, "exact")
    (out,) = accesses(priced, "out", "write")
    assert footprint(priced.program, out).value == 8192 * 17408 * 2


def test_overlapping_windows_count_once(program):
    """Windows of 8 that start every 4: rows 0..35 of 64, 16 B each."""
    made = program(
        """
        @func
        def f(x: Tensor[(64, 4), "f32"]):
            acc = tf.zeros(Tensor[(8, 4), "f32"])
            for i in range(0, 32, 4):
                acc = acc + x[i:i + 8, :]
            return acc
        """
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    rows = {r for i in range(0, 32, 4) for r in range(i, i + 8)}
    found = footprint(priced.program, access)
    assert (found.value, found.precision) == (len(rows) * 16, "exact")


def test_a_wave_is_of_whole_ctas(program):
    """Two warps of each CTA read a row each: 4 CTAs read 8 rows, not 4."""
    made = program(
        """
        @func
        def f(x: Tensor[(32, 64), "f32"]):
            out = tf.empty(Tensor[(32, 64), "f32"])
            with Mesh(("cta",), layout=(16,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:
                    v = tf.reshard(x[cta.c * 2 + t.w:cta.c * 2 + t.w + 1, :],
                                   (1, (32 @ t.l, 2)), "rmem")
                    out = tf.insert_slice(out, v, (cta.c * 2 + t.w, 0))
            return out
        """,
        cta=16,
        thread=64,
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    found = sharing(priced.program, access, 4)
    assert (found.tiles, found.least, found.most) == (8, 1, 1)


def test_coordinates_of_a_wider_mesh(program):
    """Two of four warps read a row each, by the name of the wider mesh: no more than is claimed."""
    made = program(
        """
        @func
        def f(x: Tensor[(4, 32), "f32"]):
            out = tf.empty(Tensor[(4, 32), "f32"])
            with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
                with Mesh(("thread",), layout=(4, 32), names=("w", "l")) as t:
                    with t[0:2, :] as half:
                        v = tf.reshard(x[t.w:t.w + 1, :], (1, 32 @ half.l), "rmem")
                        out = tf.insert_slice(out, v, (t.w, 0))
            return out
        """,
        cta=1,
        thread=128,
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    found = footprint(priced.program, access)
    assert found.precision == "upper_bound" and found.value >= 2 * 128
    assert {w.window.value for w in priced.windows if w.access is access} == {None}


def test_split_values_are_tiles_too(program):
    """8 @ row, 8 local, 4 @ col on 64 x 4: 32 CTAs touch 32 different parts of 32 B."""
    made = program(
        """
        @func
        def f(x: Tensor[(64, 4), "f32"]):
            with Mesh(("cta",), layout=(8, 4), names=("r", "c")) as cta:
                v = tf.reshard(x, (64 @ cta.r, 4 @ cta.c), "rmem")
                return tf.reshard(v, (64 @ cta.r, 4 @ cta.c), "gmem")
        """,
        cta=32,
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    assert access.size == 32
    assert sharing(priced.program, access, 132).tiles == 32
    assert footprint(priced.program, access).value == 1024


@st.composite
def grids(draw):
    """(units, tasks, step text, start expression) of a persistent program."""
    units = draw(st.integers(2, 6))
    tasks = draw(st.integers(units, 24))
    wide = draw(st.integers(1, 5))
    expression = draw(
        st.sampled_from(
            [
                f"(task % {wide})",
                f"(task // {wide})",
                f"((task * {wide}) % 7)",
                f"(task % {wide} + task // {wide} % 2)",
                "(cta.p % 2)",
                "(cta.p)",
            ]
        )
    )
    return units, tasks, expression


BODY = """
@func
def f(x: Tensor[(256, 16), "f32"]):
    out = tf.empty(Tensor[({units} * 8, 4), "f32"])
    with Mesh(("cta",), layout=({units},), names=("p",)) as cta:
        acc = tf.zeros(Tensor[(8, 4), "f32", "rmem"])
        for task in range(cta.p, {tasks}, {units}):
            m = {expression} * 8
            for k in tf.tile(16, 4):
                t = tf.reshard(x[m:m + 8, k], storage="smem")
                acc = acc + tf.reshard(t, storage="rmem")
        out = tf.insert_slice(out, tf.reshard(acc, storage="gmem"), (cta.p * 8, 0))
    return out
"""


class Unit:
    def __init__(self, p):
        self.p = p


@limits(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=grids(), wave=st.integers(1, 6))
def test_against_enumeration(program, made, wave):
    units, tasks, expression = made
    case = program(BODY.format(units=units, tasks=tasks, expression=expression), cta=units)
    priced = case.priced()
    (access,) = accesses(priced, "x")

    def tile(p, task):
        return eval(expression, {"cta": Unit(p), "task": task})

    first = Counter(tile(p, p) for p in range(min(units, wave)))
    found = sharing(priced.program, access, wave)
    assert (found.tiles, found.least, found.most) == (
        len(first),
        min(first.values()),
        max(first.values()),
    )
    every = {tile(p, t) for p in range(units) for t in range(p, tasks, units)}
    assert footprint(priced.program, access).value == len(every) * 4 * 8 * 4 * 4
    executed = priced.traffic.by_node[access.site.node][0].executed.value
    assert executed == tasks * 4 * 8 * 4 * 4


@pytest.mark.parametrize("wave, tiles", [(1, 1), (2, 2), (4, 4)])
def test_a_wave_is_the_first_units(program, wave, tiles):
    made = program(
        """
        @func
        def f(x: Tensor[(64,), "f32"]):
            with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
                v = tf.reshard(x, (64 @ cta.c,), "rmem")
                return tf.reshard(v, (64 @ cta.c,), "gmem")
        """,
        cta=4,
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    assert sharing(priced.program, access, wave).tiles == tiles


@pytest.mark.parametrize(
    "view, read",
    [
        # rows 8 c .. 8 c + 7 of page c, columns 4 i .. 4 i + 3: of 8 pages, 4 are read
        ("x[c.u, 8 * c.u:8 * c.u + 8, 4 * i:4 * i + 4]", lambda c, i: (c, 8 * c, 4 * i, 8, 4)),
        ("x[c.u + 2:c.u + 3, 0:32, i][:, :, None]", lambda c, i: (c + 2, 0, i, 32, 1)),
        ("tf.transpose(x, (2, 0, 1))[4 * i:4 * i + 4, c.u, 0:8]", lambda c, i: (c, 0, 4 * i, 8, 4)),
    ],
    ids=["index", "axis dropped and added", "transposed"],
)
def test_a_part_is_found_behind_views(program, view, read):
    """f32 (8, 32, 16): distinct elements read by 4 CTAs in 4 steps, one by one."""
    made = program(
        f"""
        @func
        def f(x: Tensor[(8, 32, 16), "f32"]):
            with Mesh(("cta",), layout=(4,), names=("u",)) as c:
                for i in range(4):
                    y = tf.reshard({view}, storage="rmem")
            return x
        """,
        cta=4,
    )
    priced = made.priced()
    (access,) = accesses(priced, "x")
    seen = set()
    for c, i in ((c, i) for c in range(4) for i in range(4)):
        page, row, column, rows, columns = read(c, i)
        seen |= {(page, row + r, column + k) for r in range(rows) for k in range(columns)}
    found = footprint(priced.program, access)
    assert (found.value, found.precision) == (4 * len(seen), "exact")


@pytest.mark.parametrize(
    "view, known",
    [
        ("tf.reshape(x, (4, 8, 16))[:, 2 * i:2 * i + 2]", 4 * 8 * 16 * 4),  # each row in its turn
        ("tf.reshape(x[0:16], (2, 8, 16))[:, 2 * i:2 * i + 2]", None),  # of a part: no frame
    ],
)
def test_a_whole_buffer_under_other_axes_is_its_own_frame(program, view, known):
    made = program(
        f"""
        @func
        def f(x: Tensor[(32, 16), "f32"]):
            with Mesh(("cta",), layout=(1,), names=("u",)) as c:
                for i in range(4):
                    y = tf.reshard({view}, storage="rmem")
            return x
        """,
        cta=1,
    )
    priced = made.priced()
    found = [footprint(priced.program, a).value for a in accesses(priced, "x")]
    assert found == ([] if known is None else [known])
