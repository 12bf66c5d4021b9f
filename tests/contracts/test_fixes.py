"""What a refused contract says to write, written: the program is accepted then."""

from __future__ import annotations

import re

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source

PRODUCT = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

MMA = T.cuda.sm80.Mma(dtype="bf16")


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 64)),
)
class Product:
    @func
    def f(a: Tensor[({m}, 16), "bf16"], b: Tensor[(16, {n}), "bf16"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(2, 8, 4), names=("warp", "l8", "l4")) as compute:
                acc = tf.zeros(Tensor[({m}, {n}), "f32", {acc}, "rmem"])
                lhs = tf.reshard(a, {lhs}, "rmem")
                rhs = tf.reshard(b, {rhs}, "rmem")
                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=MMA))
                return tf.reshard(acc, ({m}, {n}), "gmem")
"""
L8, L4 = "8 @ compute.l8", "4 @ compute.l4"
CASES = {
    "rows of C split over a new axis": (
        "A",
        {
            "m": 32,
            "n": 8,
            "acc": f"(2 @ compute.warp, 2, {L8}, {L4}, 2)",
            "lhs": f"(2, 2, {L8}, 2, {L4}, 2)",
            "rhs": f"(2, {L4}, 2, {L8})",
        },
    ),
    "rows of C in turn": (
        "A",
        {
            "m": 64,
            "n": 8,
            "acc": f"(2, 2 @ compute.warp, 2, {L8}, {L4}, 2)",
            "lhs": f"(4, 2, {L8}, 2, {L4}, 2)",
            "rhs": f"(2, {L4}, 2, {L8})",
        },
    ),
    "columns of C split over a new axis": (
        "B",
        {
            "m": 16,
            "n": 32,
            "acc": f"(2, {L8}, 2 @ compute.warp, 2, {L4}, 2)",
            "lhs": f"(2, {L8}, 2, {L4}, 2)",
            "rhs": f"(2, {L4}, 2, 4, {L8})",
        },
    ),
}


def load(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(text)
    return load_source(str(path), None, {})


@pytest.mark.parametrize("name", CASES)
def test_a_split_that_the_other_operands_have_is_written_out(tmp_path, name):
    operand, words = CASES[name]
    with pytest.raises(Refusal) as caught:
        load(tmp_path, PRODUCT.format(**words))
    (found,) = caught.value.diags
    assert (found.code, found.fields["clause"]) == ("contract-unmet", operand)
    layout = re.fullmatch(r'tf\.reshard\(\.\.\., (.*), "rmem"\)', str(found.fields["fix"]))
    assert layout is not None
    load(tmp_path, PRODUCT.format(**words | {{"A": "lhs", "B": "rhs"}[operand]: layout[1]}))


def test_an_extent_that_no_instruction_covers_is_padded(tmp_path):
    words = CASES["rows of C in turn"][1] | {"m": 64, "n": 8}
    text = PRODUCT.format(**words).replace("(16, 8)", "(24, 8)").replace("(64, 16)", "(64, 24)")
    text = text.replace(str(words["lhs"]), f"(4, 2, {L8}, 3, {L4}, 2)")
    text = text.replace(str(words["rhs"]), f"(3, {L4}, 2, {L8})")
    with pytest.raises(Refusal) as caught:
        load(tmp_path, text)
    (found,) = caught.value.diags
    assert (found.fields["clause"], found.fields["found"]) == ("shape", "k = 24")
    assert str(found.fields["fix"]).startswith("make k 32: pad its axis by 8")


MAP = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N = DimVar("n", 8, 512)


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 32)),
)
class Loaded:
    @func
    def f(a: Tensor[(64, {extent}), "{dtype}"]):
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
                ring = tf.empty(Tensor[(64, 8), "{dtype}", "smem"])
                tile = tf.schedule((a[:, 0:8], ring), op=T.copy_async_tensor())
                return tf.reshard(tile, (64, 8), "gmem")
"""


@pytest.mark.parametrize(
    ("extent", "dtype", "bytes"),
    [
        ("512", "bf16", 1024), ("516", "bf16", None), ("516", "f32", 2064),
        ("N", "bf16", None), ("4 * N", "bf16", None), ("8 * N", "bf16", 16), ("4 * N", "f32", 16),
        ("8 * N + 4", "bf16", None),
    ],
)  # fmt: skip
def test_a_tensor_map_steps_over_multiples_of_sixteen_bytes(tmp_path, extent, dtype, bytes):
    """CUDA Driver API, cuTensorMapEncodeTiled: globalStrides are multiples of 16. Open extents
    are held to what every value of them is a multiple of."""
    if bytes is not None:
        assert bytes % 16 == 0
        load(tmp_path, MAP.format(extent=extent, dtype=dtype))
        return
    with pytest.raises(Refusal) as caught:
        load(tmp_path, MAP.format(extent=extent, dtype=dtype))
    (found,) = caught.value.diags
    assert (found.code, found.fields["clause"]) == ("contract-unmet", "stride")
    assert "to a multiple of 8 elements" in str(found.fields["fix"])
