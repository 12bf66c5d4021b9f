"""How long an execution takes, foreseen from the steps and elements counted by hand."""

from __future__ import annotations

import pytest

from tilefoundry.interpret.estimate import ELEMENT, STEP, seconds
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

ROWS = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS = 64


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 4), Topology("thread", 64)),
)
class Doubled:
    @func
    def f(x: Tensor[(ROWS, 256), "f32"]):
        out = tf.empty(Tensor[(ROWS, 256), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(64,), names=("t",)) as thread:
                for row in range(cta.c, ROWS, 4):
                    v = tf.reshard(x[row:row + 1, :], (1, 4, 64 @ thread.t), "rmem")
                    out = tf.insert_slice(out, v + v, (row, 0))
        return out
"""


@pytest.mark.parametrize("rows", [64, 65, 4096])
def test_steps_of_warps_and_elements_are_counted(tmp_path, rows):
    path = tmp_path / "rows.py"
    path.write_text(ROWS)
    program, _ = finalize(load_source(str(path), None, {"ROWS": rows}))
    # a row: a load, an addition and a store of 256 elements by two warps
    expected = rows * 3 * (2 * STEP + 256 * ELEMENT)
    assert seconds(program) == pytest.approx(expected, rel=0.05)
