"""Device memory that the runtime gives reaches to the last element of a layout with gaps."""

from __future__ import annotations

import numpy
import pytest

from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

R, C, STEP, UNITS = 4, 8, 24, 3
LAST = (R - 1) * STEP + C
"""Elements from the first to the last of a tile."""

HEAD = f"""from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget, CudaTarget

R, C, UNITS = {R}, {C}, {UNITS}
GAPS = Layout((R, C), ({STEP}, 1))


@module(
    entry="run", target=TARGET, topologies=(Topology("OUTER", UNITS), Topology("INNER", C))
)
class Gaps:"""
OWN = """
    @func
    def run(x: Tensor[(UNITS * R, C), "f32"]) -> Tensor[(UNITS * R, C), "f32"]:
        out = tf.empty(Tensor[(UNITS * R, C), "f32"])
        with Mesh(("OUTER",), layout=(UNITS,), names=("u",)) as outer:
            with Mesh(("INNER",), layout=(C,), names=("l",)) as t:
                tile = tf.reshard(x[outer.u * R:outer.u * R + R, :], GAPS)
                for r in range(R):
                    row = tf.reshard(tile[R - 1 - r:R - r, :], (1, C @ t.l), "rmem")
                    out = tf.insert_slice(out, row + row, (outer.u * R + r, 0))
        return out
"""
BETWEEN = """
    @func
    def run(x: Tensor[(R, C), "f32"]) -> Tensor[(R, C), "f32"]:
        apart = spread(x)
        out = gathered(apart)
        return out

    @func
    def spread(x: Tensor[(R, C), "f32"]) -> Tensor[(R, C), "f32", GAPS]:
        out = tf.empty(Tensor[(R, C), "f32", GAPS])
        with Mesh(("OUTER", "INNER"), layout=(UNITS, C), names=("u", "l")) as t:
            for r in range(t.u, R, UNITS):
                row = tf.reshard(x[r:r + 1, :], (1, C @ t.l), "rmem")
                out = tf.insert_slice(out, row, (r, 0))
        return out

    @func
    def gathered(x: Tensor[(R, C), "f32", GAPS]) -> Tensor[(R, C), "f32"]:
        out = tf.empty(Tensor[(R, C), "f32"])
        with Mesh(("OUTER", "INNER"), layout=(UNITS, C), names=("u", "l")) as t:
            for r in range(t.u, R, UNITS):
                row = tf.reshard(x[r:r + 1, :], (1, C @ t.l), "rmem")
                out = tf.insert_slice(out, row + row, (r, 0))
        return out
"""
CPU = {"TARGET": 'CpuTarget("cpu.generic")', "OUTER": "core", "INNER": "lane"}
GPU = {"TARGET": 'CudaTarget("nvidia.h200_sxm")', "OUTER": "cta", "INNER": "thread"}


def written(tmp_path, body, where):
    text = HEAD + body
    for name, word in where.items():
        text = text.replace(name, word)
    path = tmp_path / "gaps.py"
    path.write_text(text)
    return load_source(str(path), None, {})


@pytest.mark.parametrize(
    ("body", "where", "tiles"),
    [(OWN, CPU, UNITS), (BETWEEN, CPU, 1), (BETWEEN, GPU, 1)],
    ids=["own-cpu", "between-cpu", "between-cuda"],
)
def test_the_workspace_holds_the_last_element(tmp_path, body, where, tiles):
    source = emit(finalize(written(tmp_path, body, where))[0])
    assert source.workspace >= tiles * LAST * 4


@pytest.mark.parametrize("body", [OWN, BETWEEN], ids=["own", "between"])
def test_the_values_are_right(tmp_path, body):
    kernel = Compiled(build(written(tmp_path, body, CPU)))
    rows = R * (UNITS if body is OWN else 1)
    x = numpy.arange(rows * C, dtype="float32").reshape(rows, C)
    tiles = x.reshape(-1, R, C)
    wanted = 2 * (tiles[:, ::-1] if body is OWN else tiles).reshape(rows, C)
    assert (kernel(x) == wanted).all()
