"""What a compiled program takes and gives."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from test_cpu_programs import FAST, loaded

from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.build.export import export
from tilefoundry.diag import Refusal

CHAIN = {"DTYPE": "f32", "N": 100}


@pytest.fixture(scope="module")
def built():
    return build(loaded("chain", CHAIN), FAST)


def wanted(x):
    return (x * x + x) * x


def test_torch_gives_torch(built):
    x = torch.randn(100)
    assert torch.equal(Compiled(built)(x), wanted(x))


def test_numpy_gives_numpy(built):
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    out = Compiled(built)(x)
    assert isinstance(out, np.ndarray) and np.array_equal(out, wanted(x))


class OnlyDlpack:
    """A tensor of a third library."""

    def __init__(self, of):
        self.of = of

    def __dlpack__(self, **given):
        return self.of.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


@pytest.mark.parametrize("make", [torch.linspace, np.linspace])
def test_anything_with_dlpack(built, make):
    x = make(-1, 1, 100)
    x = x if isinstance(x, torch.Tensor) else x.astype(np.float32)
    out = Compiled(built)(OnlyDlpack(x))
    assert np.array_equal(np.asarray(out), np.asarray(wanted(x)))


def test_bf16_through_dlpack():
    x = torch.randn(8).bfloat16()
    kernel = Compiled(build(loaded("chain", {"DTYPE": "bf16", "N": 8, "VECS": 1}), FAST))
    out = torch.empty(8, dtype=torch.bfloat16)
    kernel.into([out], OnlyDlpack(x))
    assert torch.equal(out, kernel(x))


def test_into_what_is_there(built):
    x, out = torch.randn(100), torch.empty(100)
    Compiled(built).into([out], x)
    assert torch.equal(out, wanted(x))


def without_memory():
    x = torch.randn(100)
    x.untyped_storage().resize_(0)
    return x


class Interface:
    """An array interface, and nothing else of an array."""

    __array_interface__ = np.zeros(100, np.float32).__array_interface__


@pytest.mark.parametrize(
    "x",
    [torch.randn(100, dtype=torch.float64), torch.randn(99), torch.randn(200)[::2],
     torch.randn(10, 10), torch.randn(100, dtype=torch.cfloat).conj().imag, [1.0] * 100,
     np.zeros(100), np.zeros(200, np.float32)[::2], np.zeros(99, np.float32), None,
     np.zeros(100, ">f4"), np.ma.zeros(100, np.float32), np.zeros(100, np.float32)[::-1],
     torch._efficientzerotensor(100), without_memory(), torch.zeros(100).to_sparse(),
     torch.zeros(100, device="meta"), torch.zeros(1).expand(100), Interface(),
     np.zeros(404, np.uint8)[1:401].view(np.float32)],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')} {getattr(x, 'shape', '')}",
)  # fmt: skip
def test_what_is_not_as_declared_is_refused(built, x):
    with pytest.raises(Refusal, match="build-argument") as caught:
        Compiled(built)(x)
    assert "x is not what the kernel was built for" in str(caught.value)


def test_an_output_that_cannot_be_written(built):
    out = np.zeros(100, np.float32)
    out.flags.writeable = False
    with pytest.raises(Refusal, match="build-argument"):
        Compiled(built).into([out], np.zeros(100, np.float32))


def test_outputs_have_memory_of_their_own(built):
    """The same memory, and memory that meets an input's in some bytes; neighbours are apart."""
    whole = torch.randn(320)
    x = whole[96:196]
    kernel, before = Compiled(built), whole.clone()
    for out in (x, whole[112:212], whole[80:180], x.detach(), x.numpy()):
        with pytest.raises(Refusal, match="build-overlap"):
            kernel.into([out], x)
    assert torch.equal(whole, before)
    kernel.into([whole[208:308]], x)
    assert torch.equal(whole[208:308], wanted(before[96:196]))


def test_memory_that_is_lent_lives_through_the_call(built):
    """What exports a copy of itself is not the owner of what is read."""

    class Copy(OnlyDlpack):
        def __dlpack__(self, **given):
            return self.of.clone().__dlpack__(**given)

    x = torch.randn(100)
    kernel = Compiled(built)
    for _ in range(20):
        assert np.array_equal(kernel(Copy(x)), wanted(x).numpy())


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_tensors(built, count):
    x, kernel = torch.zeros(100), Compiled(built)
    with pytest.raises(Refusal, match="build-arguments"):
        kernel(*[x] * count)
    with pytest.raises(Refusal, match="build-arguments"):
        kernel.into([torch.zeros(100)], *[x] * count)
    with pytest.raises(Refusal, match="build-arguments"):
        kernel.into([torch.zeros(100)] * count, x)


def test_a_weight_that_is_not_set():
    kernel = Compiled(build(loaded("rmsnorm", {}), FAST))
    x = torch.zeros(19, 333, dtype=torch.bfloat16)
    arguments = kernel.built.source.arguments
    given = [x for a in arguments if a.role == "in"]
    outs = [torch.zeros(a.shape) for a in arguments if a.role == "out"]
    with pytest.raises(Refusal, match="build-weight"):
        kernel(*given)
    with pytest.raises(Refusal, match="build-weight"):
        kernel.into(outs, *given)


def test_calls_from_many_threads():
    """The workspace through which cores meet is each call's own."""
    kernel = Compiled(build(loaded("total", {}), FAST))
    given = [torch.full((5003,), float(n)) for n in range(4)]
    found = [[] for _ in given]

    def work(n):
        for _ in range(50):
            found[n].append(kernel(given[n]).item())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [[5003.0 * n] * 50 for n in range(4)]


def test_an_export_runs_without_us(built, tmp_path):
    files = export(built, str(tmp_path))
    assert {f.name for f in files} == {"chain.c", "chain.h", "chain.py", "libchain.so", "tf_c.h",
                                       "tf_pin.h", "tf_matrix.h"}  # fmt: skip
    text = (tmp_path / "chain.c").read_text()
    assert "made = tf.schedule(((v * v + v) * v, " in text  # the author's line
    assert "#line" not in text
    (tmp_path / "main.c").write_text(
        '#include "chain.h"\n#include <stdio.h>\n'
        "int main(void) { _Alignas(64) float x[100], y[116];\n"
        "for (int i = 0; i < 100; i++) x[i] = i;\n"
        "int bad = chain_run(x, y, 0, 0), off = chain_run(x, y + 1, 0, 0);\n"
        'printf("%d %d %.0f\\n", bad, off, y[3]); return 0; }\n'
    )
    script = (
        "import sys, torch, subprocess, chain\n"
        "assert not any(m.startswith('tilefoundry') for m in sys.modules)\n"
        "x = torch.arange(100.)\n"
        "assert torch.equal(chain.chain(x), (x * x + x) * x)\n"
        "for wrong in (x.double(), x[:99], x.to('meta'), torch._neg_view(x), x[None]):\n"
        "    try:\n"
        "        chain.chain(wrong)\n"
        "        raise AssertionError(wrong)\n"
        "    except TypeError:\n"
        "        pass\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    (tmp_path / "libchain.so").unlink()  # the loader compiles what is missing
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    line = "cc main.c ./libchain.so -fopenmp -o main && ./main"
    done = subprocess.run(line, shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert done.stdout.split() == [b"0", b"2", b"36"]
