"""What copies to and from device memory take in sectors of 32 bytes."""

import pytest

from programs import sizes
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.lower.sectors import touched

SECTOR = 32


@pytest.mark.parametrize(
    ("offsets", "bytes", "start", "count"),
    [
        ([4 * n for n in range(32)], 4, 0, 4),
        ([4 * n for n in range(32)], 4, 16, 5),  # not at a sector's start
        # a fragment of wgmma in bf16: 8 rows of 14336 bytes, 4 lanes of 4 bytes in each
        ([14336 * (n // 4) + 4 * (n % 4) for n in range(32)], 4, 0, 8),
        ([14336 * (n // 2) + 16 * (n % 2) for n in range(32)], 16, 0, 16),
        ([64 * n for n in range(32)], 16, 0, 32),
        ([0] * 32, 4, 0, 1),
    ],
)
def test_sectors_of_one_access(offsets, bytes, start, count):
    assert touched(offsets, bytes, SECTOR, start) == count


HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 4), Topology("thread", 32)),
)
class Program:
    @func
    def f(x: Tensor[({rows}, 128), "f32"]) -> Tensor[({rows}, 128), "f32"]:
        out = tf.empty(Tensor[({rows}, 128), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout={shape}, names=("a", "b")) as t:
                held = tf.reshard(x[cta.c * 8 : cta.c * 8 + 8, :], {layout}, "rmem")
                out = tf.insert_slice(out, held * 2.0, (cta.c * 8, 0))
        return out
"""
CASES = [
    ("(8, 4)", "(8 @ t.a, 4 @ t.b, 32)", "access=16B touched=32 ideal=16"),
    ("(1, 32)", "(8, 32 @ t.b, 4)", None),
    ("(8, 4)", "(8 @ t.a, 8, 4 @ t.b, 4)", None),
    ("(1, 32)", "(8, 4, 32 @ t.b)", None),
    ("(8, 4)", "(8 @ t.a, 32, 4 @ t.b)", "access=4B touched=8 ideal=4"),
]


@pytest.mark.parametrize(("shape", "layout", "said"), CASES)
def test_the_head_says_which_line_takes_too_many(tmp_path, shape, layout, said):
    path = tmp_path / "program.py"
    path.write_text(HEAD.format(rows=32, shape=shape, layout=layout), encoding="utf-8")
    notes = next(iter(finalize(load_source(str(path), None, {}))[0].kernels.values())).notes
    found = [n for n in notes if n.startswith("sectors")]
    lines = [f"sectors line={n} instr=T.copy {said}" for n in (15, 16)] if said else []
    assert found == lines


def test_results_by_the_engine_take_whole_ones():
    """gemm_skinny stages its fragments; gemm_rs stores them as they are held."""
    for case, count in (("gemm_skinny", 0), ("gemm_rs", 1)):
        loaded = load_source(sizes.path(case), None, sizes.INTERPRET[case])
        notes = next(iter(finalize(loaded)[0].kernels.values())).notes
        assert sum(n.startswith("sectors") for n in notes) == count
