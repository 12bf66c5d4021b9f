"""Stores past the caches: the values of plain ones, whatever the edges; what they ask for."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product

import numpy as np
import pytest
import torch
from test_cpu_programs import FAST

from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.build.export import export
from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.load import load_source
from tilefoundry.layout import Layout
from tilefoundry.targets.contract.copy import Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Window
from tilefoundry.targets.cpu.instr.stream import CONTRACTS

(STORE,) = CONTRACTS
SCALED = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE, LANES, VECS, STORE = 1000, "f32", 8, 2, "x86.StreamStore"
CHUNK = LANES * VECS
STEPS = ceildiv(N, CHUNK)
store = T.x86.StreamStore() if STORE == "x86.StreamStore" else T.copy()


@module(
    entry="scaled",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 2), Topology("lane", LANES)),
)
class Scaled:
    @func
    def scaled(x: Tensor[(N,), DTYPE]) -> Tensor[(N,), DTYPE]:
        padded = tf.pad(x, (0, STEPS * CHUNK - N), 0)
        out = tf.empty(Tensor[(STEPS * CHUNK,), DTYPE])
        with Mesh(("core",), layout=(2,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(cores.core, STEPS, 2):
                    at = step * CHUNK
                    v = tf.reshard(padded[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                    made = tf.schedule((v + v, tf.empty(Tensor[(CHUNK,), DTYPE])), op=store)
                    out = tf.insert_slice(out, made, (at,))
        return out[:N]
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "scaled.py"
    path.write_text(SCALED)

    def built(flags=FAST, **consts):
        return build(load_source(str(path), None, consts), flags)

    return built


@pytest.mark.parametrize(
    ("dtype", "lanes", "n"),
    [("f32", 8, 1000), ("f32", 16, 5), ("f64", 16, 999), ("bf16", 8, 77), ("i8", 16, 4097)],
)
def test_it_stores_what_a_plain_store_does(program, dtype, lanes, n):
    consts = {"DTYPE": dtype, "LANES": lanes, "N": n}
    kernel = Compiled(program(**consts))
    x = torch.arange(n).remainder(50).to(getattr(torch, str(DTYPES[dtype].torch)))
    assert torch.equal(kernel(x), x + x)
    plain = Compiled(program(**consts, STORE="copy"))
    assert torch.equal(kernel(x), plain(x))
    assert all(a.align == 1 for a in plain.built.source.arguments)


def test_the_compiler_is_given_such_stores_and_a_fence_behind_them(program, tmp_path):
    made = program()
    text = next(t for name, t in made.source.files.items() if name.endswith(".c"))
    body = text[text.index("static void scaled_core") :]
    last = max(m.start() for m in re.finditer(r"TF_STREAM(_TWO)?\(", body))
    assert body.index("TF_STREAM_END;") > last
    tool = shutil.which("objdump")
    if tool is None:
        pytest.skip("objdump is not there")
    said = subprocess.run([tool, "-d", str(made.library)], capture_output=True, text=True).stdout
    assert re.search(r"vmovnt(ps|dq|pd)", said) and "sfence" in said
    model = program((*FAST, "-DTF_MODEL"))
    said = subprocess.run([tool, "-d", str(model.library)], capture_output=True, text=True).stdout
    assert not re.search(r"movnt", said)


@pytest.mark.parametrize(
    ("dtype", "lanes", "vecs", "pairs", "alone"),
    [
        ("bf16", 16, 2, [0], []),  # 32 bytes each: one line
        ("f16", 8, 4, [0, 16], []),  # 16 bytes each: two halves of a line
        ("bf16", 16, 3, [], [0, 16, 32]),  # chunks of 96 bytes begin in the middle of a line
        ("f32", 16, 2, [], [0, 16]),  # whole lines already
    ],
)
def test_two_vectors_of_a_line_are_one_store(program, dtype, lanes, vecs, pairs, alone):
    made = program(DTYPE=dtype, LANES=lanes, VECS=vecs, N=lanes * vecs * 8)
    text = next(t for name, t in made.source.files.items() if name.endswith(".c"))
    body = text[text.index("static void scaled_core") : text.index("int scaled_run")]

    def places(call):
        found = re.findall(call + r"\(out(?: \+ (.*?))?, ", body)
        ends = (re.search(r"\+ (\d+)$", x or "") for x in found)
        return [int(e[1]) if e else 0 for e in ends]

    assert (places("TF_STREAM_TWO"), places("TF_STREAM")) == (pairs, alone)
    x = torch.arange(lanes * vecs * 8).remainder(50).to(getattr(torch, str(DTYPES[dtype].torch)))
    assert torch.equal(Compiled(made)(x), x + x)


def test_results_lie_at_whole_lines(program, tmp_path):
    made = program()
    kernel = Compiled(made)
    for _ in range(20):
        for out in (kernel(torch.ones(1000)), kernel(np.ones(1000, np.float32))):
            pointer = out.ctypes.data if isinstance(out, np.ndarray) else out.data_ptr()
            assert pointer % 64 == 0 and float(out[-1]) == 2
    export(made, str(tmp_path))
    header = (tmp_path / "scaled.h").read_text()
    assert "out: out, f32, 1000, row-major, aligned to 64" in header
    assert "aligned to 64, better to 4096" in header
    assert "// 4096) * 4096" in (tmp_path / "scaled.py").read_text()


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_a_result_between_lines_is_refused(program, kind):
    room = torch.zeros(1100)
    start = -room.data_ptr() % 64 // 4 + 4  # 16 bytes past a line
    out = room[start : start + 1000]
    x = torch.ones(1000)
    with pytest.raises(Refusal, match="build-argument") as caught:
        Compiled(program()).into([out if kind == "torch" else out.numpy()], x)
    assert "16 bytes past one" in str(caught.value)
    assert "at a multiple of 64 bytes" in str(caught.value)


# The contract


def held(lanes, spec, shape, dtype="f32"):
    """Registers of ``lanes`` units: ``spec`` gets their axis."""
    (axis,) = arrange("lane", (lanes,), ("lane",))
    mesh = Mesh((axis,), (("lane", lanes),))
    type = TensorType(shape, DTYPES[dtype], layout_from(spec(axis)), "rmem")
    return mesh, type


def judged(lanes, spec, shape, whole, starts, dtype="f32", layout=None):
    mesh, type = held(lanes, spec, shape, dtype)
    out = TensorType(whole, DTYPES[dtype], layout_from(layout) if layout else None, "gmem")
    tile = TensorType(shape, DTYPES[dtype], None, "gmem")
    window = Window(out, tuple(range(len(shape))), starts)
    return STORE.judge("lane", mesh, Side(type), Side(tile, window))


@pytest.mark.parametrize("columns", [*range(24, 41), 64])
@pytest.mark.parametrize("start", [0, 1, 4, 8, 16])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_alignment_is_that_of_every_vector(columns, start, lanes):
    """By enumeration: each vector of four rows of a window, in memory of rows of ``columns``."""
    found = judged(
        lanes, lambda t: (4, Split(lanes, t)), (4, lanes), (8, columns), (1, start)
    )  # fmt: skip
    size = min(64, lanes * 4)
    firsts = [((1 + row) * columns + start) * 4 for row in range(4)]
    assert isinstance(found, Unmet) is any(byte % size for byte in firsts)
    if isinstance(found, Unmet):
        assert found.clause == "alignment" and f"multiples of {size // 4} elements" in found.fix


@pytest.mark.parametrize(
    ("lanes", "spec", "shape", "clause"),
    [
        (8, lambda t: (2, Split(8, t)), (16,), None),
        (8, lambda t: (Split(8, t), 2), (16,), "layout"),  # neighbours in one lane
        (8, lambda t: (16,), (16,), "layout"),  # each lane has all
        (2, lambda t: (8, Split(2, t)), (16,), "lanes"),  # 8 bytes
    ],
)
def test_a_vector_is_neighbours_lane_by_lane(lanes, spec, shape, clause):
    found = judged(lanes, spec, shape, (64,), (16,))
    assert (found.clause if isinstance(found, Unmet) else None) == clause


def test_columns_are_no_vectors():
    apart = Layout((64, 64), (1, 64))
    found = judged(8, lambda t: (2, Split(8, t)), (2, 8), (64, 64), (0, 0), layout=apart)
    assert isinstance(found, Unmet) and found.clause == "layout"
    found = judged(8, lambda t: (Split(8, t), 2), (8, 2), (64, 64), (0, 0), layout=apart)
    assert not isinstance(found, Unmet)
    assert all(
        (64 * column + lane) * 4 == 4 * lane + 256 * column
        for lane, column in product(range(8), range(2))
    )
