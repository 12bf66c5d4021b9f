"""CUDA C++ of the programs: what it says, and what the assembler makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest

from programs.reference import REFERENCES
from programs.sizes import EVALUATE, path
from tilefoundry.build import build, build_program
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.emit.writer import Writer
from tilefoundry.ir.expr import Sym, maximum, minimum, substitute
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.lower.registers import divide, estimate
from tilefoundry.targets.cuda.emit.kernel import Kernel
from tilefoundry.targets.cuda.emit.matrix import bit_terms
from tilefoundry.targets.cuda.emit.memory import bits_in
from tilefoundry.targets.cuda.emit.program import HEADER
from tilefoundry.targets.cuda.emit.text import cuda_dim, fit
from tilefoundry.targets.cuda.host.compiler import _resources
from tilefoundry.targets.cuda.host.export import export
from tilefoundry.targets.target import Target
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


@needs_nvcc
def test_an_export_says_how_it_was_compiled(assembled, tmp_path):
    """The options that were settled on where registers would spill are among them."""
    told = set()
    for name in ("softmax_cluster", "row_sum"):
        _, built = assembled[name]
        export(built, str(tmp_path / name))
        stem = built.source.name
        command = json.loads((tmp_path / name / f"{stem}.json").read_text())["compile"]
        told.add(any(word.startswith("-D") for word in command))
        done = subprocess.run(command, cwd=tmp_path / name, capture_output=True, text=True,
                              check=True)  # fmt: skip
        (mine,) = _resources(done.stderr).values()
        (kernel,) = built.kernels
        assert mine["registers"] == kernel["registers"] and not mine["spill_bytes"], name
    assert told == {True, False}


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
            text = parts[launch["kernel"]]
            assert launch["overlaps"] == ("ACQBULK" in text) == ("PREEXIT" in text), name
            if launch["overlaps"]:
                assert not launch["cooperative"], name
                assert not TOUCHES.search(text[: text.index("ACQBULK")]), name
                assert text.index("ACQBULK") < text.index("PREEXIT"), name
                waiting.add(launch["kernel"])
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


@pytest.mark.parametrize(("case", "each"), [("layernorm", 1), ("layernorm_long", 2)])
def test_warps_meet_once_for_a_sum_and_again_where_a_loop_writes_over_it(case, each):
    """Two sums of a CTA's warps for a row; the second program has a loop over rows around them."""
    text = next(iter(emit(program(case)).readable.values()))
    assert (text.count("float *table"), text.count("tf_barrier<")) == (2, 2 * each)


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


def told(func, path, value):
    """A kernel for the same device, but for one fact."""
    device = func.target.device
    fact = replace(func.target.fact(path), value=value)
    return replace(func, target=Target(replace(device, facts={**device.facts, path: fact})))


@pytest.mark.parametrize(
    ("case", "path", "value", "fewer"),
    [
        ("rmsnorm", "registers.count", 16384, 2),
        ("rmsnorm", "resident.thread", 512, 2),
        ("rmsnorm", "resident.cta", 3, 3),
        ("transpose_smem", "memory.shared.processor_capacity", 32768, 3),
        ("rmsnorm", "processors.count", 32768, 1),
    ],
)
def test_what_is_resident_is_what_the_documents_say(case, path, value, fewer):
    (func,) = program(case, own=True).kernels.values()
    assert Kernel(func, Writer(), {}).resident() > fewer
    assert Kernel(told(func, path, value), Writer(), {}).resident() == fewer


def test_registers_are_moved_within_what_the_documents_say():
    (func,) = program("gemm_optimal", own=True).kernels.values()
    roles = estimate(func)

    def moved(func):
        return {count for _, _, count in divide(func, roles).registers}

    assert len(moved(func)) == 2
    assert moved(told(func, "registers.count", 2 * 65536)) == {0}
    assert max(moved(told(func, "registers.count", 48 * 1024))) < max(moved(func))
    assert min(moved(told(func, "limits.setmaxnreg.min", 48))) > min(moved(func))


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


def test_no_part_of_an_index_overflows(tmp_path):
    """Compiled for the host, which traps where an int overflows."""
    far, less, near = Sym("far", 0, 2**20), Sym("less", -(2**20), 2**20), Sym("near", 0, 7)
    head = HEADER.read_text().split("// Index arithmetic")[1].split("template <int B")[0]
    found = [
        (far.expr() * 2**14 + near.expr()) // 2**13,
        (far.expr() * 2**14 + near.expr()) % 4096,
        far.expr() * 2**14 - less.expr() * 2**13,
        (less.expr() * 2**14 - near.expr()) // 2**13,
        (less.expr() * 2**14 - near.expr()) % 4099,
        minimum(far.expr() * 2**14, less.expr() * 2**14 + 5),
        maximum(less.expr() * 2**14, near.expr() - 3),
        far.expr() * 2**12 - far.expr() * near.expr() * 2**9,
    ]
    values = [(f, x, n) for f in (0, 1, 2**20) for x in (-(2**20), 0, 2**20) for n in (0, 7)]
    body, wanted = [], []
    for f, x, n in values:
        env = {far: f, less: x, near: n}
        body.append(f"{{ int far = {f}, less = {x}, near = {n};")
        for one in found:
            body.append(f'printf("%lld\\n", (long long)({cuda_dim(one, lambda s: s.name)}));')
            wanted.append(substitute(one, env))
        body.append("}")
    lines = ["#include <stdio.h>", "#include <stdint.h>", "#define TF static inline", "//" + head,
             "int main() {", *body, "}"]  # fmt: skip
    (tmp_path / "t.cpp").write_text("\n".join(lines))
    subprocess.run(["c++", "-std=c++17", "-ftrapv", "-o", "t", "t.cpp"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True)
    assert [int(x) for x in done.stdout.split()] == wanted


def test_numbers_of_a_turn_beyond_an_int():
    far = [n // 2 * 2_000_000_000 + n % 2 * 8 for n in range(8)]
    assert fit(far, "i") == "((int64_t)i % 2) * 8 + ((int64_t)i / 2) * 2000000000"
    assert fit([n * 2**30 for n in range(3)], "i") == "(int64_t)i * 1073741824"
    assert fit([n * 2**30 for n in range(2)], "i") == "i * 1073741824"


def test_a_loop_beyond_an_int_counts_in_64_bits(tmp_path):
    text = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N, STEP = 5 << 30, 8192

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 8), Topology("thread", 256)))
class P:
    @func
    def f(x: Tensor[(N,), "f16"]) -> Tensor[(N,), "f16"]:
        out = tf.empty(Tensor[(N,), "f16"])
        with Mesh(("cta",), layout=(8,), names=("b",)) as cta:
            with Mesh(("thread",), layout=(256,), names=("l",)) as t:
                for at in range(cta.b * STEP, N, 8 * STEP):
                    held = tf.reshard(x[at:at + STEP], (4, 256 @ t.l, 8), "rmem")
                    out = tf.insert_slice(out, held + held, (at,))
        return out
"""
    (tmp_path / "p.py").write_text(text)
    source = emit(finalize(load_source(str(tmp_path / "p.py"), None, {}))[0])
    said = source.readable["f.cu"]
    assert "for (int64_t at = b * 8192; at < 5368709120; " in said
    assert "x + (int64_t)l * 8 + (int64_t)at" in said
