"""Matrix instructions of CPUs take whole tiles of memory: edges are copied with their fill."""

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.program import Issue, walk

HEAD = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target

LOAD, DOT = T.x86.amx.TileLoad(), T.x86.amx.TdpBf16Ps(dtype="bf16")
STORE, FMA = T.x86.amx.TileStore(), T.x86.avx2.FmaPs(dtype="f32")
PAIRS = Layout(((16, 2), 16), ((32, 1), 2))
"""
TILES = (
    HEAD
    + """

@module(
    entry="run",
    target=X86Target("intel.xeon_amx"),
    topologies=(Topology("core", 1), Topology("lane", 16)),
)
class Run:
    @func
    def run(a: Tensor[(13, 32), "bf16"], b: Tensor[(32, 16), "bf16"]) -> Tensor[(16, 16), "f32"]:
        out = tf.empty(Tensor[(16, 16), "f32"])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(16,), names=("lane",)) as lanes:
                wide = WIDE
                pairs = tf.reshard(b, PAIRS, "gmem")
            c = tf.zeros(Tensor[(16, 16), "f32", "tmem"])
            x = tf.schedule((wide, tf.empty(Tensor[(16, 32), "bf16", "tmem"])), op=LOAD)
            y = tf.schedule((pairs, tf.empty(Tensor[(32, 16), "bf16", PAIRS, "tmem"])), op=LOAD)
            c = tf.schedule((c, x, y), op=T.tiled_mma(atom=DOT))
            tile = tf.schedule((c, tf.empty(Tensor[(16, 16), "f32"])), op=STORE)
            out = tf.insert_slice(out, tile, (0, 0))
        return out
"""
)
ON_LANES = (
    HEAD
    + """

@module(
    entry="run",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 1), Topology("lane", 8)),
)
class Run:
    @func"""
)
VECTORS = (
    ON_LANES
    + """
    def run(a: Tensor[(5, 8), "f32"], b: Tensor[(8, 13), "f32"]) -> Tensor[(5, 16), "f32"]:
        out = tf.empty(Tensor[(5, 16), "f32"])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                wide = WIDE
                acc = tf.zeros(Tensor[(5, 16), "f32", (5, 2, 8 @ t.lane), "rmem"])
                acc = tf.schedule((acc, a, wide), op=T.tiled_mma(atom=FMA), repeat=(5, 2, 8))
                out = tf.insert_slice(out, acc, (0, 0))
        return out
"""
)
CASES = [
    (TILES, "tf.pad(a, (0, 0, 0, 3))", (16, 32), "bf16", "T.x86.amx.TileLoad"),
    (VECTORS, "tf.pad(b, (0, 3))", (8, 16), "f32", "T.tiled_mma"),
]


def program(tmp_path, text, wide):
    path = tmp_path / "run.py"
    path.write_text(text.replace("WIDE", wide))
    return finalize(load_source(str(path), None, {}))[0]


@pytest.mark.parametrize(("text", "padded", "shape", "dtype", "instr"), CASES)
def test_a_window_beyond_the_edge_is_refused(text, padded, shape, dtype, instr, tmp_path):
    with pytest.raises(Refusal) as refused:
        program(tmp_path, text, padded)
    (diag,) = refused.value.diags
    assert diag.code == "contract-unmet"
    assert diag.fields["instr"] == instr
    assert "tf.insert_slice(tf.empty(" in diag.fix


@pytest.mark.parametrize(("text", "padded", "shape", "dtype", "instr"), CASES)
def test_its_repair_is_executed(text, padded, shape, dtype, instr, tmp_path):
    wide = f'tf.insert_slice(tf.empty(Tensor[{shape}, "{dtype}"]), {padded}, (0, 0))'
    made = program(tmp_path, text, wide)
    kernel = made.kernels["run"]
    given = {p.name: torch.randn(p.shape).bfloat16() for p in kernel.params if p.role == "in"}
    given = {n: v if dtype == "bf16" else v.float() for n, v in given.items()}
    found = run_program(made, given)
    assert found.reports == []
    exact = given["a"].double() @ given["b"].double()
    padding = (0, 16 - exact.shape[1], 0, found.outputs[0].shape[0] - exact.shape[0])
    want = torch.nn.functional.pad(exact, padding)
    torch.testing.assert_close(found.outputs[0].double(), want, rtol=1e-5, atol=1e-5)


LAID = (
    ON_LANES
    + """
    def run(a: Tensor[(5, 8), "f32"], b: Tensor[SHAPE, "f32"]) -> Tensor[(5, 16), "f32"]:
        out = tf.empty(Tensor[(5, 16), "f32"])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("lane",)) as t:
                acc = tf.zeros(Tensor[(5, 16), "f32", (5, 2, 8 @ t.lane), "rmem"])
                wide = tf.reshard(WIDE, LAYOUT, "gmem")
                acc = tf.schedule((acc, a, wide), op=T.tiled_mma(atom=FMA), repeat=(5, 2, 8))
                out = tf.insert_slice(out, acc, (0, 0))
        return out
"""
)


@pytest.mark.parametrize("layout", ["Layout((8, 16))", "(8, 16)"])
@pytest.mark.parametrize(
    ("shape", "wide", "copied"),
    [
        ((8, 13), "tf.pad(b, (0, 3))", True),
        ((5, 16), "tf.pad(b, (0, 0, 1, 2))", True),
        ((16, 8), "tf.transpose(b, (1, 0))", True),
        ((8, 40), "b[:, 8:24]", True),
        ((8, 32), "b[:, ::2]", True),
        ((4, 16), "tf.repeat_interleave(b, 2, axis=0)", True),
        ((8, 32), "tf.split(b, 2, axis=1)[1]", True),
        ((2, 8, 20), "tf.reshape(b[1:2, :, 4:20], (8, 16))", True),
        ((24, 16), "b[8:16, :]", False),
        ((3, 8, 16), "tf.reshape(b[1:2], (8, 16))", False),
        ((16, 16), "tf.split(b, 2, axis=0)[1]", False),
        ((8, 16), "tf.pad(b, (0, 0))", False),
        ((8, 1, 16), "tf.reshape(tf.transpose(b, (1, 0, 2)), (8, 16))", False),
    ],
)
def test_what_is_to_lie_row_by_row_lies_so(shape, wide, copied, layout, tmp_path):
    """A layout of device memory that binds no unit says where elements lie: what lies
    otherwise is copied, what lies so is only named anew."""
    path = tmp_path / "run.py"
    words = {"SHAPE": str(shape), "WIDE": wide, "LAYOUT": layout}
    text = LAID
    for word, by in words.items():
        text = text.replace(word, by)
    path.write_text(text)
    loaded = load_source(str(path), None, {})
    made = finalize(loaded)[0]
    body = made.kernels["run"].body
    moved = [s for s, _ in walk(body) if isinstance(s, Issue) and s.instr == "copy"]
    assert len(moved) == 1 + copied  # the result is stored
    given = {"a": torch.randint(-4, 5, (5, 8)).float(), "b": torch.randint(-4, 5, shape).float()}
    found = run_program(made, given)
    assert found.reports == []
    (want,) = evaluate(loaded.module, "run", [*given.values()])
    assert torch.equal(found.outputs[0], want)
