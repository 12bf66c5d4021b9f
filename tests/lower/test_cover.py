"""A fill outside every mesh is dropped where all of it is written later: which windows do that."""

import sys
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from trapped import refused, right

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 4), Topology("thread", 32)))
class Program:
    @func
    def f(x: Tensor[(16, 64), "f32"]):
        out = tf.zeros(Tensor[{shape}, "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with {part} as part:
                with Mesh(("thread",), layout=(32,), names=("l",)) as t:
                    v = tf.reshard(x, (16, 32 @ t.l, 2), "rmem")
{body}
        return out
"""
PUT = "out = tf.insert_slice(out, {}, ({}, 0))\n".format
ROW = '    u = tf.reshard(x[0:1], (1, 32 @ t.l, 2), "rmem")\n    ' + PUT("u", "i")
DEALT = 'u = tf.reshard(x, (4, 4 @ cta.c, 64), "smem")\n' + PUT("u", 0)
FEW = PUT("v", 0) + 'u = tf.reshard(x[0:4], (4, 32 @ t.l, 2), "rmem")\n' + PUT("u", "{}")

COVERED = {
    "by one CTA for all": (16, "cta[:]", PUT("v", 0)),
    "by the CTAs of a part": (32, "cta[0:2]", PUT("v", "part.c * 16")),
    "by windows of two sizes": (20, "cta[:]", FEW.format(16)),
    "by what is dealt out": (16, "cta[:]", DEALT),
    "by rows in turn": (32, "cta[:]", "for i in range(cta.c, 32, 4):\n" + ROW),
    "by those that have a step": (2, "cta[:]", "for i in range(cta.c, 2, 4):\n" + ROW),
}
OPEN = {
    "CTAs that take no part": (64, "cta[0:2]", PUT("v", "cta.c * 16")),
    "a hole between windows": (21, "cta[:]", FEW.format(17)),
    "rows that no step comes to": (33, "cta[:]", "for i in range(cta.c, 32, 4):\n" + ROW),
}


def program(folder, rows, part, body):
    path = folder / "program.py"
    lines = "\n".join(" " * 20 + line for line in body.rstrip().splitlines())
    text = HEAD.format(shape=(rows, 64), part=part, body=lines)
    path.write_text(text, encoding="utf-8")
    return load_source(str(path), None, {})


@pytest.mark.parametrize("case", COVERED)
def test_it_is_covered(case, tmp_path):
    right(program(tmp_path, *COVERED[case]), policies=("round-robin",))


@pytest.mark.parametrize("case", OPEN)
def test_it_is_open(case, tmp_path):
    assert refused(lambda: finalize(program(tmp_path, *OPEN[case])))[0] == "lower-fill"
