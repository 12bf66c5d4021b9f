"""Transpositions in memory of the emitted code's header, against numpy, words and edges alike."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest

from tilefoundry.build.compiler import compiled
from tilefoundry.build.machine import missing
from tilefoundry.emit.c.program import HEADER
from tilefoundry.emit.source import Source
from tilefoundry.targets.cpu.emit.program import OPTIONS

WIDTHS = {
    1: (),
    4: (),
    8: ("avx2", "fma"),
    16: ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"),
}
SHAPES = [(2, 2, 40), (3, 5, 33), (4, 4, 16), (8, 8, 32), (8, 11, 17), (12, 12, 16), (13, 13, 50),
          (16, 16, 16), (20, 31, 21)]  # fmt: skip
"""Rows, words from one column's group to the next in the destination, columns."""
WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def source(lanes):
    lines = [f"#define TF_LANES {lanes}", '#include "tf_c.h"']
    for bits, (rows, step, columns) in product(WORDS, SHAPES):
        lines.append(
            f"void turn_{bits}_{rows}_{step}_{columns}(void *to, const void *from) "
            f"{{ tf_turn_{bits}(to, {step}, from, {columns + 3}, {rows}, {columns}); }}"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=WIDTHS)
def library(request):
    lanes, needs = request.param, WIDTHS[request.param]
    if missing(needs):
        pytest.skip(f"this machine lacks {' '.join(missing(needs))}")
    flags = tuple(OPTIONS[name] for name in needs)
    files = {"all.c": source(lanes), "tf_c.h": HEADER.read_text()}
    made = compiled(Source("all", "cpu", files, files, "", (), 0, (*flags, "-O1")))
    return ctypes.CDLL(str(made.library))


@pytest.mark.parametrize("bits", WORDS)
@pytest.mark.parametrize(("rows", "step", "columns"), SHAPES)
def test_a_transposition(library, bits, rows, step, columns):
    draw = np.random.default_rng(0)
    word = WORDS[bits]
    came = draw.integers(0, 2**bits, (rows, columns + 3), np.uint64).astype(word)
    to = draw.integers(0, 2**bits, (columns + 1, step), np.uint64).astype(word)
    want = to.copy()
    want[:columns, :rows] = came[:, :columns].T
    made = to.copy()
    name = f"turn_{bits}_{rows}_{step}_{columns}"
    getattr(library, name)(ctypes.c_void_p(made.ctypes.data), ctypes.c_void_p(came.ctypes.data))
    assert np.array_equal(made, want)
