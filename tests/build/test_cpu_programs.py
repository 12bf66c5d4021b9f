"""CPU programs, compiled and run, against float64 within derived bounds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from native import AVX512
from programs.reference import inputs, misses
from programs_cpu.expected import REFERENCES
from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.build.machine import missing
from tilefoundry.evaluate import evaluate
from tilefoundry.judge.lowered import Interpreted
from tilefoundry.lang.load import load_source
from tilefoundry.targets import load_target

PROGRAMS = Path(__file__).parents[1] / "programs_cpu"
FAST = ("-O1",)

CASES = [
    ("chain", {}),
    ("chain", {"DTYPE": "f32", "N": 1, "CORES": 1}),
    ("chain", {"DTYPE": "bf16", "N": 4096, "CORES": 3, "LANES": 16, "VECS": 2}),
    ("softmax", {}),
    ("softmax", {"DTYPE": "f32", "ROWS": 4, "COLS": 64, "CORES": 1}),
    ("softmax", {"ROWS": 1, "COLS": 5, "LANES": 4}),
    ("softmax", {"DTYPE": "f32", "ROWS": 5, "COLS": 2100, "VECS": 1, "BLOCKS": 2}),
    ("rmsnorm", {}),
    ("rmsnorm", {"DTYPE": "f32"}),
    ("rmsnorm", {"DTYPE": "f32", "ROWS": 3, "COLS": 1024, "CORES": 1, "VECS": 1}),
    ("rmsnorm_rows", {}),
    ("rmsnorm_rows", {"DTYPE": "f32", "ROWS": 3, "COLS": 512, "CORES": 1, "VECS": 4}),
    ("layernorm_rows", {}),
    ("layernorm_rows", {"DTYPE": "bf16", "ROWS": 4, "COLS": 16, "CORES": 1, "VECS": 2}),
    ("layernorm_flow", {}),
    ("layernorm_flow", {"ROWS": 5, "COLS": 2100, "CORES": 3}),
    ("layernorm_flow", {"DTYPE": "bf16", "ROWS": 1, "COLS": 16, "VECS": 1}),
    ("layernorm_flow", {"DTYPE": "bf16", "ROWS": 3, "COLS": 4099}),
    ("layernorm", {"ROWS": 1, "COLS": 40, "CORES": 3}),
    ("rmsnorm", {"DTYPE": "f32", "ROWS": 2, "COLS": 40, "CORES": 3}),
    ("softmax", {"ROWS": 1, "COLS": 40, "CORES": 3}),
    ("layernorm", {}),
    ("layernorm", {"ROWS": 3, "COLS": 5}),
    ("layernorm", {"ROWS": 9, "COLS": 2100, "VECS": 2, "R": 1, "TURN": 512}),
    ("layernorm", {"DTYPE": "bf16", "ROWS": 2, "COLS": 17, "CORES": 1, "VECS": 1}),
    ("total", {}),
    ("total", {"DTYPE": "bf16", "N": 7, "CORES": 4, "LANES": 4}),
    ("total", {"N": 1, "CORES": 1}),
    ("activations", {}),
    ("activations", {"DTYPE": "bf16", "N": 5, "LANES": 2}),
]


def loaded(name, consts):
    return load_source(str(PROGRAMS / f"{name}.py"), None, consts)


def constants(name, consts):
    scope = {}
    exec((PROGRAMS / f"{name}.py").read_text().partition("@module")[0], scope)
    return SimpleNamespace(**{**scope, **consts})


def run(found, seed=0, threads=0, given=None):
    """(inputs by name, outputs) of the loaded program's kernel, by models of instructions where
    this machine lacks them; drawn inputs unless given."""
    target = found.module.target.id
    built = build(found, FAST, model=bool(missing(load_target(target).capabilities)))
    takes = [a for a in built.source.arguments if a.role != "out"]
    if given is None:
        named = inputs({a.name: a for a in takes}, seed)
    else:
        named = dict(zip((a.name for a in takes), given, strict=True))
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: named[a.name] for a in takes if a.role == "weight"}
    outs = kernel(*(named[a.name] for a in takes if a.role == "in"))
    return named, outs if isinstance(outs, tuple) else (outs,)


@pytest.mark.parametrize(("name", "consts"), CASES, ids=str)
def test_a_program_is_right(name, consts):
    given, outs = run(loaded(name, consts))
    wanted = REFERENCES[name](given, constants(name, consts))
    assert len(outs) == len(wanted)
    for out, want in zip(outs, wanted, strict=True):
        assert not misses(out, want)


LONG = [
    ("chain", {"DTYPE": "f32", "N": 5003, "VECS": 4}),
    ("chain", {"DTYPE": "bf16", "N": 8192}),
    ("softmax", {"DTYPE": "f32", "ROWS": 5, "COLS": 4096, "STREAMS": 1, "VECS": 1}),
    ("softmax", {"DTYPE": "f32", "ROWS": 3, "COLS": 4096, "VECS": 4}),
    ("softmax", {"ROWS": 3, "COLS": 1024}),
    ("rmsnorm", {"DTYPE": "f32", "ROWS": 5, "COLS": 320, "R": 4, "VECS": 1}),
    ("rmsnorm", {"DTYPE": "f32", "ROWS": 5, "COLS": 300}),
    ("rmsnorm_rows", {"DTYPE": "f32", "ROWS": 5, "COLS": 512, "VECS": 4}),
    ("layernorm", {"ROWS": 5, "COLS": 320, "R": 2, "VECS": 4}),
    ("layernorm", {"ROWS": 5, "COLS": 300}),
    ("layernorm", {"ROWS": 13, "COLS": 4096, "VECS": 2}),
    ("layernorm", {"DTYPE": "bf16", "ROWS": 7, "COLS": 1100, "VECS": 2}),
    ("layernorm_rows", {"ROWS": 5, "COLS": 512}),
    ("layernorm_flow", {"ROWS": 5, "COLS": 4096}),
    ("total", {"N": 50003, "STREAMS": 1, "VECS": 1}),
    ("activations", {"N": 99}),
]
"""With vectors of 512 bits, whole and not, and constants of the benchmarks."""


@pytest.mark.parametrize(("name", "consts"), LONG, ids=str)
def test_a_program_is_right_on_the_widest_vectors(name, consts):
    consts = {"TARGET": AVX512, "LANES": 16, **consts}
    given, outs = run(loaded(name, consts))
    wanted = REFERENCES[name](given, constants(name, consts))
    for out, want in zip(outs, wanted, strict=True):
        assert not misses(out, want)


@pytest.mark.parametrize(
    "consts",
    [
        {},
        {"VECS": 1, "BLOCKS": 2, "STREAMS": 1},
        {"VECS": 1, "BLOCKS": 2, "STREAMS": 2, "COLS": 2100},
        {"LANES": 4, "BLOCKS": 1, "COLS": 77},
        {"LANES": 16, "TARGET": AVX512, "COLS": 4096, "VECS": 4},
    ],
    ids=str,
)
def test_softmax_takes_masks_and_elements_far_from_zero(consts):
    """Maxima of blocks and lanes are of masked elements here, and products with log2(e) that
    round by more than the powers' range."""
    consts = {"ROWS": 15, "COLS": 1100, "DTYPE": "f32", **consts}
    drawn = torch.randn(15, consts["COLS"], generator=torch.Generator().manual_seed(3)) * 4
    half = consts["COLS"] // 2
    for row, mask in enumerate((-torch.inf, -1e9, -1e30, torch.finfo(torch.float32).min)):
        drawn[row, half:] = mask
        drawn[4 + row, :half] = mask
    drawn[8] -= 1e4
    drawn[9:12] *= torch.tensor([[1e6], [1e9], [1e37]])
    drawn[12] = -3e38
    drawn[13] = torch.arange(consts["COLS"]) * 64 - 2.0**30
    drawn[14] = torch.arange(consts["COLS"]) * 128 + 2.0**30
    _, (out,) = run(loaded("softmax", consts), given=[drawn])
    wanted = drawn.double().softmax(-1)
    torch.testing.assert_close(out[:13].double(), wanted[:13], rtol=2e-5, atol=1e-36)
    torch.testing.assert_close(out[13:].double(), wanted[13:], rtol=2e-5, atol=1e-19)
    for row, column, bad in ((0, 5, torch.nan), (4, -1, torch.inf), (9, -1, torch.nan)):
        spoilt = drawn.clone()
        spoilt[row, column] = bad
        _, (out,) = run(loaded("softmax", consts), given=[spoilt])
        assert out[row].isnan().all() and out.isnan().sum() == consts["COLS"]
    drawn[0] = -torch.inf
    _, (out,) = run(loaded("softmax", consts), given=[drawn])
    assert out[0].isnan().all() and out.isnan().sum() == consts["COLS"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_softmax_takes_masks_of_16_bits(dtype):
    consts = {"ROWS": 4, "COLS": 200, "DTYPE": dtype}
    width = getattr(torch, {"f16": "float16", "bf16": "bfloat16"}[dtype])
    drawn = torch.randn(4, 200, generator=torch.Generator().manual_seed(4)).to(width)
    drawn[0, 100:] = drawn[1, :100] = -torch.inf
    drawn[2, 100:] = drawn[3, :100] = torch.finfo(width).min
    _, (out,) = run(loaded("softmax", consts), given=[drawn])
    torch.testing.assert_close(out.double(), drawn.double().softmax(-1), rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("name", ["layernorm", "layernorm_rows", "layernorm_flow"])
def test_a_spread_is_right_far_from_zero(name):
    """The squares are about a base near the mean, so a large mean costs no more than its own
    rounding: rows of 300 of spread 1 about 1e4."""
    x = torch.randn(4, 300, generator=torch.Generator().manual_seed(5)) + 1e4
    ones, none = torch.ones(300), torch.zeros(300)
    found = loaded(name, {"ROWS": 4, "COLS": 300, "DTYPE": "f32"})
    _, (out,) = run(found, given=[x, ones, none])
    wanted = torch.nn.functional.layer_norm(x.double(), (300,), eps=1e-5)
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=4e-3)


def test_a_workspace_begins_with_a_page():
    """Which loads wait for which stores is told by places in a page: the same in each run."""
    kernel = Compiled(build(loaded("softmax", {}), FAST), 1)
    assert kernel.built.source.workspace
    assert all(kernel._workspace()[1] % 4096 == 0 for _ in range(8))


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_threads_do_not_change_a_result(name):
    found = loaded(name, {})
    _, one = run(found, threads=1)
    _, all = run(found)
    for a, b in zip(one, all, strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


SMALL = {
    "chain": {"N": 70},
    "softmax": {"ROWS": 3, "COLS": 20},
    "rmsnorm": {"ROWS": 3, "COLS": 20},
    "rmsnorm_rows": {"ROWS": 3, "COLS": 20},
    "layernorm": {"ROWS": 3, "COLS": 20},
    "layernorm_rows": {"ROWS": 3, "COLS": 20},
    "layernorm_flow": {"ROWS": 3, "COLS": 20},
    "total": {"N": 70},
    "activations": {"N": 20},
}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_is_what_the_program_means_executed_or_interpreted(name):
    found = loaded(name, SMALL[name])
    given, outs = run(found, seed=1)
    weights = {n: given[n] for n in found.module.funcs[found.func].weights}
    takes = [v for n, v in given.items() if n not in weights]
    meant = evaluate(found.module, found.func, takes, weights, "cpu")
    lowered = Interpreted(found)
    lowered.weights = weights
    for out, mean, seen in zip(outs, meant, lowered(*takes), strict=True):
        size = 2.0**-7 if out.dtype is torch.bfloat16 else 2.0**-20
        torch.testing.assert_close(out.double(), mean.double(), rtol=size, atol=size)
        torch.testing.assert_close(seen.double(), mean.double(), rtol=size, atol=size)
