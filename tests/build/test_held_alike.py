"""A value in registers that meets one held otherwise: what the refusal says to write is built."""

from __future__ import annotations

import re

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

CUDA = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

MMA = T.cuda.sm80.Mma(dtype="bf16")


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 64)),
)
class Biased:
    @func
    def f(
        a: Tensor[(32, 16), "bf16"], b: Tensor[(16, 8), "bf16"], bias: Tensor[{shape}, "f32"]
    ):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(2, 8, 4), names=("warp", "l8", "l4")) as t:
                acc = tf.zeros(
                    Tensor[(32, 8), "f32", (2 @ t.warp, 2, 8 @ t.l8, 4 @ t.l4, 2), "rmem"]
                )
                lhs = tf.reshard(a, (2 @ t.warp, 2, 8 @ t.l8, 2, 4 @ t.l4, 2), "rmem")
                rhs = tf.reshard(b, (2, 4 @ t.l4, 2, 8 @ t.l8), "rmem")
                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=MMA))
                held = tf.reshard(bias, {layout}, "rmem")
                return tf.reshard(acc + held, (32, 8), "gmem")
"""
CPU = """\
from tilefoundry.dsl import *
from tilefoundry.target import X86Target


@module(
    entry="f",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 1), Topology("lane", 8)),
)
class Biased:
    @func
    def f(x: Tensor[(4, 16), "f32"], bias: Tensor[{shape}, "f32"]):
        with Mesh(("core",), layout=(1,), names=("c",)) as core:
            with Mesh(("lane",), layout=(8,), names=("l",)) as t:
                v = tf.reshard(x, (4, 2, 8 @ t.l), "rmem")
                held = tf.reshard(bias, {layout}, "rmem")
                return tf.reshard(v + held, (4, 16), "gmem")
"""


@pytest.mark.parametrize(
    ("program", "shape", "whole", "fits"),
    [
        (CUDA, "(8,)", "(8,)", "(4 @ l4, 2)"),
        (CUDA, "(1, 8)", "(1, 8)", "(1, 4 @ l4, 2)"),
        (CUDA, "(32, 1)", "(32, 1)", "(2 @ warp, 2, 8 @ l8, 1)"),
        (CPU, "(16,)", "(16,)", "(2, 8 @ l)"),
    ],
)
def test_the_layout_to_write_is_said(tmp_path, program, shape, whole, fits):
    def emitted(layout):
        path = tmp_path / "program.py"
        path.write_text(program.format(shape=shape, layout=layout))
        return emit(finalize(load_source(str(path), None, {}))[0])

    with pytest.raises(Refusal) as caught:
        emitted(whole)
    (found,) = caught.value.diags
    assert found.code == "emit-form"
    assert found.fields["fix"] == f'hold held so: tf.reshard(..., {fits}, "rmem")'
    emitted(re.sub("@ ", "@ t.", fits))
