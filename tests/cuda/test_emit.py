"""CUDA C++ of the programs: what it says, and what the assembler makes of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from programs.reference import REFERENCES
from programs.sizes import EVALUATE, path
from tilefoundry.build import build, build_program
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.ir.expr import Sym
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.targets.cuda.emit.matrix import bit_terms
from tilefoundry.targets.cuda.emit.memory import bits_in
from tilefoundry.targets.cuda.emit.text import cuda_dim, fit
from tilefoundry.tir.program import Issue, Sync, walk

needs_nvcc = pytest.mark.skipif(
    not (shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")), reason="needs nvcc"
)
CUOBJDUMP = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
GOLDEN = ("gemm_optimal", "softmax", "flash_attention")


@cache
def program(case, own=False):
    found, findings = finalize(load_source(path(case), None, {} if own else EVALUATE[case]))
    assert not findings
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_the_source_is_known(name, golden):
    source = emit(program(name, own=True))
    golden(f"{name}.cu", next(iter(source.readable.values())))


@pytest.fixture(scope="module")
def assembled(tmp_path_factory):
    """Every program at its own size, those of two sizes at the other one as well."""
    programs = {**{n: program(n, own=True) for n in REFERENCES}, **{
        c: program(c) for c in EVALUATE if "@" in c}}  # fmt: skip
    home = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # one cache for all workers: each compiles its part
        home = home.parent
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("TILEFOUNDRY_HOME", str(home / "assembled"))
        made = dict(zip(programs, pool.map(build_program, programs.values()), strict=True))
    return {name: (programs[name], built) for name, built in made.items()}


@needs_nvcc
def test_every_program_is_assembled_and_nothing_spills(assembled):
    for name, (_, built) in assembled.items():
        for kernel in built.kernels:
            assert kernel["spill_bytes"] == 0, name
            assert kernel["stack_bytes"] == 0, name
            assert "finding" not in kernel, name
            assert kernel["registers"] * kernel["threads"] <= 65536, name


@cache
def sass(library):
    """What the assembler made of a program."""
    done = subprocess.run([CUOBJDUMP, "-sass", str(library)], capture_output=True, text=True,
                          check=True)  # fmt: skip
    return done.stdout


MACHINE = {
    ("copy_async_tensor", "smem"): "UTMALDG",
    ("copy_async_tensor", "gmem"): "UTMASTG",
    ("copy_async_bulk", "smem"): "UBLKCP",
    ("copy_async", "smem"): "LDGSTS",
    ("ldmatrix", "rmem"): "LDSM",
    ("T.cuda.sm80.Mma", "rmem"): "HMMA",
    ("T.cuda.sm90.Wgmma", "rmem"): "GMMA",
}
"""What an instruction of a schedule is in the machine's own language."""
MULTICAST, REGISTERS = ".MULTICAST", "USETMAXREG"


def scheduled(made):
    """The machine's instructions that a program's schedule says."""
    out = set()
    for kernel in made.kernels.values():
        for stmt, _ in walk(kernel.body):
            if isinstance(stmt, Issue) and stmt.writes:
                atom = stmt.attrs.get("atom")
                path = stmt.instr if atom is None else f"T.{atom.path}"
                out.add(MACHINE.get((path, stmt.writes[0].storage)))
                out |= {MULTICAST} if "multicast" in stmt.attrs else set()
            if isinstance(stmt, Sync) and stmt.kind == "registers":
                out.add(REGISTERS)
    return out - {None}


@needs_nvcc
@pytest.mark.skipif(CUOBJDUMP is None, reason="needs cuobjdump")
def test_the_machine_does_what_the_schedule_says(assembled):
    words, seen = {*MACHINE.values(), MULTICAST, REGISTERS}, set()
    for name, (made, built) in assembled.items():
        wanted = scheduled(made)
        assert {x for x in words if x in sass(built.library)} == wanted, name
        assert not re.search(r"\b(LDL|STL)\b", sass(built.library)), name
        seen |= wanted
    assert seen == words


TOUCHES = re.compile(r"\b(LDG|STG|LD|ST|ATOMG?|RED|REDG|LDGSTS|UTMALDG|UTMASTG|UBLKCP)\b")
"""What reads or writes device memory."""


@needs_nvcc
@pytest.mark.skipif(CUOBJDUMP is None, reason="needs cuobjdump")
def test_nothing_is_touched_before_the_kernel_before_has_ended(assembled):
    """griddepcontrol is ACQBULK (wait) and PREEXIT (launch_dependents) in SASS. The assembler
    moves loads of what a kernel does not write over it, so there are none in such a kernel."""
    waiting = set()
    for name, (_, built) in assembled.items():
        parts = dict(p.split("\n", 1) for p in sass(built.library).split("Function : ")[1:])
        for launch in built.source.launches:
            text = parts[launch.kernel]
            assert launch.overlaps == ("ACQBULK" in text) == ("PREEXIT" in text), name
            if launch.overlaps:
                assert not launch.cooperative, name
                assert not TOUCHES.search(text[: text.index("ACQBULK")]), name
                assert text.index("ACQBULK") < text.index("PREEXIT"), name
                waiting.add(launch.kernel)
                assert ".CONSTANT" not in text, name
    assert {"gemm", "attention", "gemv"} <= waiting


@needs_nvcc
@pytest.mark.skipif(CUOBJDUMP is None, reason="needs cuobjdump")
def test_the_start_of_shared_memory_is_asked_for_once(assembled):
    """Not in every turn of a loop, before each wait."""
    for name in ("gemm_halves", "gemm_skinny", "gemm_optimal"):
        _, built = assembled[name]
        lines = sass(built.library).splitlines()
        first = next(n for n, x in enumerate(lines) if "PHASECHK" in x)
        waits = [n for n, x in enumerate(lines) if "PHASECHK" in x]
        assert not any("SR_CgaCtaId" in x for x in lines[first : waits[-1]]), name


@needs_nvcc
def test_what_is_written_twice_is_computed_twice(assembled):
    """64 numbers a thread and their exponentials, four CTAs of 256 threads to a processor."""
    _, built = assembled["softmax_cta"]
    assert "tf_renew(held);" in next(iter(built.source.readable.values()))
    assert built.kernels[0]["registers"] <= 64


@needs_nvcc
def test_a_program_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path))
    loaded = load_source(path("chain"), None, EVALUATE["chain"])
    assert not build(loaded).hit
    assert build(loaded).hit


STRIPS = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f", target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 2), Topology("thread", 32)),
)
class M:
    @func
    def f(x: Tensor[(8, 32), "f32"]) -> Tensor[(8, 32), "f32"]:
        out = tf.empty(Tensor[(8, 32), "f32"])
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(32,), names=("lane",)) as t:
                held = tf.reshard(x, (8, 32 @ t.lane), "rmem")
                for first in range(4):
                    for two in range({loop}):
                        part = held[2 * two:2 * two + 2, :] * 2.0
                        out = tf.insert_slice(out, part, (2 * two, 0))
        return out
"""


def test_a_loop_over_registers_numbers_them(tmp_path):
    file = tmp_path / "strips.py"
    file.write_text(STRIPS.format(loop="4"))
    found, _ = finalize(load_source(str(file), None, {}))
    text = next(iter(emit(found).readable.values()))
    assert "held[two * 2 + i] * 2.0f" in text
    assert text.index("#pragma unroll\n") < text.index("for (int two")
    file.write_text(STRIPS.format(loop="first, 4"))
    found, _ = finalize(load_source(str(file), None, {}))
    with pytest.raises(Refusal, match="its bounds are not constant"):
        emit(found)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([3, 4, 5, 6], "i + 3"),
        ([7, 7, 7], "7"),
        ([0, 1, 0, 1], "i % 2"),
        ([0, 0, 1, 1, 0, 0, 1, 1], "i / 2 % 2"),
        ([0, 8, 1, 9, 2, 10], "(i % 2) * 8 + i / 2"),
        ([0, 16, 32, 5], None),
        ([0, 1, 2, 3, 4, 5, 6], "i"),
    ],
)
def test_an_index_follows_from_digits_of_the_loop(values, text):
    found = fit(values, "i")
    assert (found is None) == (text is None)
    if found is not None:
        python = found.replace("/", "//")
        assert [eval(python, {"i": i}) for i in range(len(values))] == values


def test_addresses_of_lanes_are_sums_over_bit_fields():
    # ldmatrix: rows of 128 bytes by the low three bits, 16-byte columns by the next
    values = [lane % 8 * 128 + lane // 8 * 16 for lane in range(32)]
    assert bit_terms(values) == [(0, 3, 128), (3, 2, 16)]
    assert bit_terms([0, 1, 2, 4]) is None


def test_bits_that_an_address_may_have():
    lane, row = Sym("lane", 0, 3), Sym("row", 0, 7)
    assert bits_in(lane.expr() * 4 + row.expr() * 128) == 0b1110001100
    assert bits_in(lane.expr() - 1) == -1
    # 12 + 12 carries into bit 4
    assert bits_in(lane.expr() * 4 + Sym("other", 0, 3).expr() * 4) & 0b10000


def test_index_expressions_divide_downwards():
    i = Sym("i", 0, 100)
    j = Sym("j", -4, 100)
    assert cuda_dim((i.expr() + 1) // 7, lambda s: s.name) == "(i + 1) / 7"
    assert cuda_dim(j.expr() % 3, lambda s: s.name) == "tf_mod(j, 3)"
    far = Sym("far", 0, 2**20)
    assert cuda_dim(far.expr() * 2**14, lambda s: s.name) == "(int64_t)far * 16384"
