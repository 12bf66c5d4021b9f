"""C for Apple's matrix coprocessor through a cross compiler for aarch64: it compiles there, its
words are the public table's, and its model gives on aarch64 the bits that it gives here.

The second post's projection is the program (``examples/projection_amx.py``). Needs
gcc-aarch64-linux-gnu, for the run qemu-user; without them the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.targets.apple_amx.words import CLR, SET, word

PROGRAM = Path(__file__).parents[2] / "examples" / "projection_amx.py"
SIZES = {"M": 32, "N": 128, "K": 16}
GCC, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
OBJDUMP = shutil.which("aarch64-linux-gnu-objdump")
LIBRARIES = Path("/usr/aarch64-linux-gnu")
FLAGS = ["-std=gnu11", "-O2", "-ffp-contract=off", "-fopenmp", "-w"]
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "run.c"
static void *filled(const char *name, long bytes) {
    void *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
    FILE *file = fopen(name, "rb");
    if (fread(to, 1, bytes, file) != (size_t)bytes) exit(2);
    return to;
}
int main(int count, char **names) {
    f32 *out = malloc(OUT);
    int failed = run_run(filled(names[1], X), filled(names[2], WEIGHT), out, aligned_alloc(64, WORK), 2);
    fwrite(out, 1, OUT, fopen(names[3], "wb"));
    return failed;
}
"""  # noqa: E501

pytestmark = pytest.mark.skipif(GCC is None, reason="no cross compiler for aarch64")


@pytest.fixture(scope="module")
def program():
    return load_source(str(PROGRAM), None, SIZES)


@pytest.fixture(scope="module")
def source(program, tmp_path_factory):
    made = emit(finalize(program)[0])
    folder = tmp_path_factory.mktemp("cross")
    for name, text in made.files.items():
        (folder / name).write_text(text)
    return folder, made


def compiled(folder, *more):
    subprocess.run([str(GCC), *FLAGS, *more], cwd=folder, check=True, timeout=300)


def test_apples_words_assemble_to_the_public_tables(source):
    folder, made = source
    file = next(iter(made.files))
    # the branch for Apple's machines, without their headers
    compiled(folder, "-D__APPLE__", "-U__linux__", "-c", "-o", "apple.o", file)
    text = subprocess.run(
        [str(OBJDUMP), "-d", "apple.o"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    seen = {int(x, 16) for x in re.findall(r"\t([0-9a-f]{8}) ", text) if x.startswith("00201")}
    used = ("ldx", "ldy", "stzi", "fma16")
    assert seen == {SET, CLR, *(word(op, 0) for op in used)}


@pytest.mark.skipif(QEMU is None, reason="no emulator of aarch64")
def test_the_model_gives_the_same_bits_on_aarch64(program, source):
    folder, made = source
    rng = np.random.default_rng(0)
    given = {a.name: rng.standard_normal(a.shape).astype(np.float16)
             for a in made.arguments if a.role != "out"}  # fmt: skip
    (out,) = [a for a in made.arguments if a.role == "out"]
    names = {a.name: a.name for a in made.arguments}
    assert list(names) == ["x", "weight", out.name]
    for name, array in given.items():
        (folder / name).write_bytes(array.tobytes())
    sizes = {"X": given["x"].nbytes, "WEIGHT": given["weight"].nbytes, "OUT": out.bytes,
             "WORK": -(-made.workspace // 64) * 64 + 64}  # fmt: skip
    (folder / "main.c").write_text(MAIN)
    compiled(folder, *(f"-D{k}={v}" for k, v in sizes.items()), "main.c", "-o", "main", "-lm")
    subprocess.run(
        [str(QEMU), "-L", str(LIBRARIES), "main", "x", "weight", "made"],
        cwd=folder, check=True, timeout=300,
    )  # fmt: skip
    there = np.fromfile(folder / "made", np.float32).reshape(out.shape)
    call = Compiled(build(program, model=True))
    call.weights = {"weight": given["weight"]}
    assert np.array_equal(there.view(np.uint32), call(given["x"]).view(np.uint32))
    exact = given["x"].astype(np.float64) @ given["weight"].astype(np.float64).T
    scale = np.abs(given["x"]).astype(np.float64) @ np.abs(given["weight"]).astype(np.float64).T
    # f16 products are exact in f32; 16 sums each round once
    assert (np.abs(there - exact) <= 16 * 2.0**-24 * scale).all()
