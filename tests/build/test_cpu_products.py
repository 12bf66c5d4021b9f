"""CPU programs with matrix instructions: evaluated, compiled and run, and interpreted as TIR,
each against float64 and the last two against each other.

Programs for AVX-512 are for the target that has it here. Where this machine lacks an instruction
the program runs on the instruction's model.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from native import AVX512, TARGETS
from programs.reference import misses
from programs_cpu.cases import drawn
from programs_cpu.products import REFERENCES
from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.build.machine import missing
from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import POLICIES, run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

PROGRAMS = Path(__file__).parents[1] / "programs_cpu"
CASES = [
    ("gemm_avx2", {}),
    ("gemm_avx512", {}),
    ("gemm_avx512", {"M": 1, "N": 1, "K": 2}),
    ("gemm_avx512", {"M": 100, "N": 111, "K": 122, "KC": 61, "NC": 128, "CM": 2, "CN": 1}),
    ("gemm_avx512", {"M": 13, "N": 128, "K": 52, "KC": 26, "NC": 64, "PACKED": False}),
    ("gemm_avx512", {"M": 29, "N": 65, "K": 8, "KC": 3, "CN": 1}),
    ("gemm_avx512", {"M": 5, "N": 33, "K": 7, "KC": 7, "NC": 32, "NR": 32, "CN": 1}),
    ("gemm_bf16", {}),
    ("gemm_bf16", {"M": 28, "K": 2, "CM": 2, "CN": 1}),
    ("gemm_int8", {}),
    ("gemm_int8", {"M": 12, "N": 32, "K": 4, "NR": 32, "NC": 32, "CN": 1}),
    ("gemm_amx", {}),
    ("gemm_amx", {"M": 32, "K": 32, "KC": 32}),
    ("gemm_amx", {"DTYPE": "u8", "CM": 2, "CN": 1}),
    ("gemv", {}),
    ("gemv", {"N": 4, "K": 32, "CORES": 1}),
    ("gemv", {"N": 5, "K": 80, "R": 2}),
    ("gemv", {"N": 3, "K": 4096}),
    ("gemv", {"N": 9, "K": 64, "CPU": "amd.epyc_avx2", "LANES": 8, "R": 4}),
    ("bmm_gelu", {}),
    ("bmm_gelu", {"B": 1, "M": 7, "MR": 7, "N": 32, "BLOCK": 32, "K": 1}),
    ("conv3x3", {}),
    ("conv3x3", {"H": 3, "W": 14, "C": 5, "F": 32, "CORES": 1}),
    ("projection_amx", {}),
    ("projection_amx", {"M": 32, "N": 64, "K": 8}),
]
EXACT = {
    "gemm_avx2", "gemm_avx512", "gemm_bf16", "gemm_int8", "gemm_amx", "conv3x3", "projection_amx"
}  # fmt: skip
"""Programs that only move, multiply and add in an order that instructions state."""


def loaded(name, consts):
    cpu = {"CPU": AVX512} if vars(constants(name, {})).get("CPU") in TARGETS else {}
    return load_source(str(PROGRAMS / f"{name}.py"), None, {**cpu, **consts})


def constants(name, consts):
    scope = {}
    exec((PROGRAMS / f"{name}.py").read_text().partition("@module")[0], scope)
    return SimpleNamespace(**{**scope, **consts})


def run(found, model, threads=0):
    built = build(found, ("-O1",), model)
    given = drawn({a.name: a for a in built.source.arguments if a.role != "out"})
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: given[a.name] for a in built.source.arguments if a.role == "weight"}
    outs = kernel(*(given[a.name] for a in built.source.arguments if a.role == "in"))
    return given, outs if isinstance(outs, tuple) else (outs,)


def lacks(found):
    return bool(missing(found.module.target.load().capabilities))


@pytest.mark.parametrize(("name", "consts"), CASES, ids=str)
def test_a_product_is_right(name, consts):
    found = loaded(name, consts)
    given, outs = run(found, lacks(found))
    for out, want in zip(outs, REFERENCES[name](given, constants(name, consts)), strict=True):
        assert not misses(out, want)


@pytest.mark.parametrize("name", ["gemm_avx2", "gemm_avx512", "gemm_bf16", "gemm_int8"])
def test_the_model_gives_the_instruction_s_bits(name):
    found = loaded(name, {})
    if lacks(found):
        pytest.skip("this machine lacks the instruction")
    _, real = run(found, False)
    _, model = run(found, True)
    for a, b in zip(real, model, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "consts"), CASES, ids=str)
def test_the_evaluator_agrees(name, consts):
    found = loaded(name, consts)
    entry = found.module.funcs[found.module.entry]
    given = drawn({p.name: p.tensor for p in entry.params})
    weights = {n: given[n] for n in entry.weights}
    args = [given[p.name] for p in entry.params if p.name not in entry.weights]
    outs = evaluate(found.module, found.module.entry, args, weights)
    for out, want in zip(outs, REFERENCES[name](given, constants(name, consts)), strict=True):
        assert not misses(out, want)


@pytest.mark.parametrize(("name", "consts"), CASES, ids=str)
def test_the_interpreter_gives_the_compiled_program_s_bits(name, consts):
    found = loaded(name, consts)
    given, outs = run(found, lacks(found))
    policy = POLICIES[CASES.index((name, consts)) % len(POLICIES)]
    seen = run_program(finalize(found)[0], given, policy=policy, seed=len(name))
    assert [str(r) for r in seen.reports] == []
    wanted = REFERENCES[name](given, constants(name, consts))
    for out, mine, want in zip(outs, seen.outputs, wanted, strict=True):
        assert torch.equal(out, mine) if name in EXACT else not misses(mine, want)


BROKEN = [
    # weights as they come, [N, K]: neighbours of a row of X are K apart
    ("projection_amx", "(64, (K * 64, 1))", "(1, (K * 64, K))", "T.apple.amx.Ldx"),
    # activations as they come, [M, K]
    ("projection_amx", "((K * 32, 1), 32)", "((K * 32, K), 1)", "T.apple.amx.Ldy"),
    # B row by row: neighbours along k are a row apart
    ("gemm_bf16", "((2 * NR, 1), (K * NR, 2))", "((2 * NR, NR), (K * NR, 1))", "DpBf16Ps"),
    ("gemm_int8", "((4 * NR, 1), (K * NR, 4))", "((4 * NR, NR), (K * NR, 1))", "DpBusd"),
    ("gemm_amx", "((16 * E, 1), (K * 16, E))", "((16 * E, 16), (K * 16, 1))", "TileLoad"),
]


@pytest.mark.parametrize(("name", "packed", "broken", "says"), BROKEN)
def test_an_operand_that_is_not_packed_is_refused(name, packed, broken, says, tmp_path):
    text = (PROGRAMS / f"{name}.py").read_text()
    assert text.count(packed) == 1
    (tmp_path / "broken.py").write_text(text.replace(packed, broken))
    with pytest.raises(Refusal) as refused:
        load_source(str(tmp_path / "broken.py"), None, {})
    first = refused.value.diags[0]
    assert first.code == "contract-unmet"
    assert says in first.text()
