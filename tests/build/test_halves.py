"""Arithmetic of f16 is rounded once: whatever the machine does it with."""

from __future__ import annotations

import pytest
import torch
from test_cpu_programs import FAST

from native import AVX512
from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.build.machine import missing
from tilefoundry.lang.load import load_source
from tilefoundry.targets import load_target

PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target

TARGET, LANES, N = "x86_64.generic", 8, 65536


@module(
    entry="three",
    target=X86Target(TARGET),
    topologies=(Topology("core", 1), Topology("lane", LANES)),
)
class Halves:
    @func
    def three(a: Tensor[(N,), "f16"], b: Tensor[(N,), "f16"]) -> Tensor[(3, N), "f16"]:
        out = tf.empty(Tensor[(3, N), "f16"])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for i in range(0, N, LANES):
                    x = tf.reshard(a[i:i + LANES], (LANES @ t.lane,), "rmem")
                    y = tf.reshard(b[i:i + LANES], (LANES @ t.lane,), "rmem")
                    out = tf.insert_slice(out, tf.reshape(x + y, (1, LANES)), (0, i))
                    out = tf.insert_slice(out, tf.reshape(x - y, (1, LANES)), (1, i))
                    out = tf.insert_slice(out, tf.reshape(x * y, (1, LANES)), (2, i))
        return out
"""


@pytest.mark.parametrize(
    ("target", "lanes"),
    [("x86_64.generic", 8), (AVX512, 16), ("intel.xeon_amx", 8), ("intel.xeon_amx", 16)],
)
def test_every_half_with_many_others(target, lanes, tmp_path):
    """Exact sums and products in float64 (40 and 22 bits), rounded once by torch."""
    if missing(load_target(target).capabilities):
        pytest.skip(f"this machine is no {target}")
    path = tmp_path / "halves.py"
    path.write_text(PROGRAM)
    found = load_source(str(path), None, {"TARGET": target, "LANES": lanes})
    kernel = Compiled(build(found, FAST))
    bits = torch.arange(65536).to(torch.int32)
    a = bits.to(torch.int16).view(torch.float16)
    for step in (1, 3, 1021, 30011, 32767):
        b = a[(bits * step + step) % 65536].contiguous()
        wide = a.double(), b.double()
        for got, want in zip(kernel(a, b), (wide[0] + wide[1], wide[0] - wide[1],
                                            wide[0] * wide[1]), strict=True):  # fmt: skip
            want = want.half()
            same = (got == want) & (got.signbit() == want.signbit())
            assert bool((same | (got.isnan() & want.isnan())).all())
