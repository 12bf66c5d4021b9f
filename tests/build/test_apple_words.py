"""Words of Apple's matrix coprocessor against the public table, and the model that reads them.

The table is that of corsix/amx: instruction numbers in bits 5 to 9 of a reserved A64 word, and
the fields of the operand register by bit.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilefoundry import targets
from tilefoundry.build.compiler import compiler
from tilefoundry.emit.c.program import HEADER
from tilefoundry.targets.apple_amx.words import CLR, SET, ZEROS, fma, move, word

TABLE = [
    ("ldx", 0, "00102000"), ("ldy", 1, "21102000"), ("stx", 2, "42102000"),
    ("sty", 3, "63102000"), ("ldz", 4, "84102000"), ("stz", 5, "a5102000"),
    ("ldzi", 6, "c6102000"), ("stzi", 7, "e7102000"), ("fma64", 10, "4a112000"),
    ("fma32", 12, "8c112000"), ("fma16", 15, "ef112000"),
]  # fmt: skip
"""Name, number, bytes in memory with the number of the register that of the instruction."""


@pytest.mark.parametrize(("name", "register", "bytes_"), TABLE)
def test_a_word_byte_by_byte(name, register, bytes_):
    assert word(name, register).to_bytes(4, "little").hex() == bytes_
    assert word(name, 30).to_bytes(4, "little")[0] & 0x1F == 30


def test_the_switch():
    assert SET.to_bytes(4, "little").hex() == "20122000"
    assert CLR.to_bytes(4, "little").hex() == "21122000"


@pytest.mark.skipif(shutil.which("llvm-mc") is None, reason="no cross assembler")
def test_an_assembler_for_aarch64_gives_the_same_bytes(tmp_path):
    words = [word(name, register) for name, register, _ in TABLE] + [SET, CLR]
    text = "\n".join(f".inst {w:#010x}" for w in words)
    made = tmp_path / "words.o"
    subprocess.run(
        ["llvm-mc", "-triple=aarch64", "-filetype=obj", "-o", str(made)],
        input=text, text=True, check=True,
    )  # fmt: skip
    assert b"".join(w.to_bytes(4, "little") for w in words) in made.read_bytes()


def bit(value, at, width=1):
    return value >> at & ((1 << width) - 1)


def test_the_operand_of_a_move():
    for op, row in (("ldx", 7), ("ldy", 3), ("ldz", 63), ("stzi", 41)):
        operand = move(op, row, 0x12_3456_789A, pair=True)
        assert bit(operand, 0, 56) == 0x12_3456_789A
        assert bit(operand, 56, 6) == row and bit(operand, 62) == 1
    with pytest.raises(AssertionError):
        move("ldx", 8)


def test_the_operand_of_a_product():
    operand = fma(448, 64, 3, wide=True, skip=(False, True, False))
    assert (bit(operand, 0, 9), bit(operand, 10, 9), bit(operand, 20, 6)) == (64, 448, 3)
    assert [bit(operand, n) for n in (27, 28, 29)] == [0, 1, 0]
    assert (bit(operand, 62), bit(operand, 63)) == (1, 0)
    assert bit(fma(vector=True), 63) == 1
    left = {0, *range(9, 10), 19, *range(30, 60)}  # enable modes of zero: every lane
    assert not any(bit(fma(511, 511, 63, skip=ZEROS), n) for n in left - {0})


# The model


CODE = """
#define TF_LANES 1
#include "tf_c.h"
#include "tf_apple.h"
void play(const int *ops, const uint64_t *operands, int count, unsigned char *z) {
    TF_AMX_BEGIN;
    for (int n = 0; n < count; n++) TF_AMX(ops[n], operands[n]);
    memcpy(z, tf_amx.z, sizeof tf_amx.z);
    TF_AMX_END;
}
"""
OPS = {"ldx": 0, "ldy": 1, "ldz": 4, "stz": 5, "ldzi": 6, "stzi": 7, "fma32": 12, "fma16": 15}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.c").write_text(CODE)
    root = Path(targets.__file__).parent
    library = folder / "model.so"
    subprocess.run(
        [compiler()[0], "-O1", "-shared", "-fPIC", "-w", "-DTF_MODEL", "-ffp-contract=off",
         f"-I{HEADER.parent}", f"-I{root / 'apple_amx' / 'rt'}", "-fopenmp",
         "-o", str(library), str(folder / "model.c"), "-lm"], check=True,
    )  # fmt: skip
    loaded = ctypes.CDLL(str(library))

    def play(*steps):
        """Z as 64 rows of 64 bytes after (op, operand) steps."""
        ops = np.array([OPS[op] for op, _ in steps], np.int32)
        operands = np.array([operand for _, operand in steps], np.uint64)
        z = np.zeros((64, 64), np.uint8)
        loaded.play(ops.ctypes, operands.ctypes, len(steps), z.ctypes)
        return z

    return play


def pointer(array, offset=0):
    return array.ctypes.data + offset


def test_the_model_of_fma32(model):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((8, 16)).astype(np.float32) for _ in range(2))
    steps = [(f"ld{f}", move(f"ld{f}", n, pointer(v[n])))
             for f, v in (("x", x), ("y", y)) for n in range(8)]  # fmt: skip
    steps += [("fma32", fma(64 * n, 64 * n, 2)) for n in range(8)]
    z = model(*steps).view(np.float32)
    exact = y.astype(np.float64).T @ x
    assert np.abs(z[2::4] - exact).max() < 9 * 2.0**-24 * (np.abs(y).T @ np.abs(x)).max()
    assert not z[0::4].any() and not z[1::4].any() and not z[3::4].any()


def test_the_model_reads_x_at_any_byte(model):
    x = np.arange(32, dtype=np.float32)
    y = np.ones(16, np.float32)
    z = model(
        ("ldx", move("ldx", 0, pointer(x))), ("ldx", move("ldx", 1, pointer(x, 64))),
        ("ldy", move("ldy", 0, pointer(y))), ("fma32", fma(12, 0)),
    ).view(np.float32)  # fmt: skip
    assert np.array_equal(z[0], x[3:19])


@pytest.mark.parametrize("wide", [True, False])
def test_the_model_of_fma16(model, wide):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(32).astype(np.float16) for _ in range(2))
    loads = [("ldx", move("ldx", 5, pointer(x))), ("ldy", move("ldy", 6, pointer(y)))]
    product = ("fma16", fma(320, 384, 0 if wide else 1, wide=wide))
    z = model(*loads, product, product)
    exact = np.outer(y.astype(np.float64), x)
    if wide:  # products of halves are exact in f32, and so is their double
        z = z.view(np.float32)
        assert np.array_equal(z[0::2], (2 * exact)[:, 0::2])
        assert np.array_equal(z[1::2], (2 * exact)[:, 1::2])
    else:  # each step rounds once
        once = exact.astype(np.float16)
        twice = (exact + once.astype(np.float64)).astype(np.float16)
        assert np.array_equal(z.view(np.float16)[1::2], twice)
        assert not z[0::2].any()


def test_the_model_of_moves(model):
    memory = np.arange(64, dtype=np.float32)
    out = np.zeros(32, np.float32)
    z = model(
        ("ldzi", move("ldzi", 10, pointer(memory))),
        ("ldzi", move("ldzi", 11, pointer(memory, 64))),
        ("stzi", move("stzi", 11, pointer(out))), ("ldz", move("ldz", 12, pointer(memory, 128))),
        ("stz", move("stz", 12, pointer(out, 64))),
    ).view(np.float32)  # fmt: skip
    assert np.array_equal(z[10], memory[0:32:2]) and np.array_equal(z[11], memory[1:32:2])
    assert np.array_equal(out, memory[16:48])


def test_the_model_clears(model):
    ones = np.ones(16, np.float32)
    loads = [("ldz", move("ldz", row, pointer(ones))) for row in range(64)]
    assert not model(*loads, ("fma16", fma(wide=True, skip=ZEROS))).any()
    z = model(*loads, ("fma32", fma(z=9, vector=True, skip=ZEROS)))
    assert not z[9].any() and z[8].any() and z[10].any()
