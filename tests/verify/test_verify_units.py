"""Which units touch what, where coordinates, loops dealt over them and lanes stand in indices;
the right answers by counting by hand what each program says."""

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.verify import judge

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CORES, LANES = 4, 8


@module(
    entry="f",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class M:
    @func
    def f(x: Tensor[(8,), "f32"]) -> Tensor[{shape}, "f32"]:
        out = tf.empty(Tensor[{shape}, "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                row = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                one = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
{body}
        return out
"""
DEALT = "for i in range(cores.core, {stop}, CORES):\n    "
WRONG = [
    # a core and what is dealt to it, core and core + 4: 8 of 32 rows, 2 * 4 of 64
    ((32, 8), DEALT.format(stop=8) + "out = tf.insert_slice(out, row, (cores.core * 8 + i, 0))"),
    ((32, 24), "for j in range(4):\n    for i in range(cores.core, 8, CORES):\n        out = "
               "tf.insert_slice(out, row, (cores.core * 8 + i, max(j - 1, 0) * 8))"),
    ((64, 8), "for i in range(cores.core, 8, CORES):\n    for j in range(cores.core, 8, CORES):\n"
              "        out = tf.insert_slice(out, row, (i * 8 + j, 0))"),
    # two cores have no step
    ((4, 8), DEALT.format(stop=2) + "out = tf.insert_slice(out, row, (cores.core, 0))"),
    # lanes named twice, and half of them
    ((4, 16), "with Mesh(t, layout=(2, 4), names=('a', 'b')) as q:\n"
              "    out = tf.insert_slice(out, one, (cores.core, t.lane * 2 + q.a))"),
    ((4, 8), "with t[0:4] as q:\n    out = tf.insert_slice(out, one, (cores.core, t.lane))"),
]  # fmt: skip
RIGHT = [
    ((8, 8), DEALT.format(stop=8) + "out = tf.insert_slice(out, row, (i, 0))"),
    ((8, 8), "for j in range(3):\n    for i in range(cores.core, 8, CORES):\n"
             "        out = tf.insert_slice(out, row, (i, 0))"),
    ((4, 8), DEALT.format(stop=8) + "out = tf.insert_slice(out, row, (cores.core, 0))"),
    ((4, 8), "out = tf.insert_slice(out, one, (cores.core, t.lane))"),
    ((4, 8), "out = tf.insert_slice(out, one, (cores.core, 7 - t.lane))"),
    ((4, 16), "for i in range(t.lane * 2, t.lane * 2 + 3):\n"
              "    out = tf.insert_slice(out, one, (cores.core, min(i, t.lane * 2 + 1)))"),
]  # fmt: skip


def codes(shape, body, tmp_path):
    lines = "\n".join(" " * 16 + line for line in body.splitlines())
    path = tmp_path / "units.py"
    path.write_text(HEAD.format(shape=shape, body=lines))
    loaded = load_source(str(path), None, {})
    (kernel,) = lower(loaded.module, loaded.func or "").kernels.values()
    found = judge(kernel)
    assert not found.notes
    return {f.code for f in found}


@pytest.mark.parametrize(("shape", "body"), WRONG, ids=str)
def test_what_units_leave_out_is_found(shape, body, tmp_path):
    assert "device-unwritten" in codes(shape, body, tmp_path)


@pytest.mark.parametrize(("shape", "body"), RIGHT, ids=str)
def test_what_units_write_together_is_whole(shape, body, tmp_path):
    assert codes(shape, body, tmp_path) == set()


def test_lanes_of_cores_that_meet_are_found(tmp_path):
    body = "out = tf.insert_slice(out, one, (0, cores.core * 4 + t.lane))"
    assert "device-overlap" in codes((1, 20), body, tmp_path)
