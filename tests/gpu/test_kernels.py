"""Built kernels on a device: right within the programs' bounds, near the evaluator, and the
same bits each time."""

from __future__ import annotations

import pytest
import torch

from programs.reference import REFERENCES, inputs, misses
from programs.sizes import EVALUATE, path
from tilefoundry.build import build, callable_of
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]

REPEATS = 100


def launched(case, consts, seed=0):
    """The program, its inputs by name, its kernel, and the inputs on the device."""
    loaded = load_source(path(case), None, consts)
    func = loaded.module.funcs[loaded.func]
    values = inputs({p.name: p.type for p in func.params}, seed)
    kernel = callable_of(build(loaded))
    kernel.weights = {n: values[n].cuda() for n in func.weights}
    plain = [values[p.name].cuda() for p in func.params if p.name not in func.weights]
    return loaded, values, kernel, plain


def on_device(case, values, expected):
    """What may be expected of the hardware: wgmma adds products of 8-bit floats with 14 bits,
    those of each step of 32 aligned to the largest and cut off."""
    if not case.endswith("@fp8"):
        return expected
    a, b = values["a"].double(), values["b"].double()
    more = a.shape[1] // 32 * 2.0**-13 * (a.abs() @ b.abs().T)
    return expected._replace(bound=expected.bound + more)


def called(kernel, plain):
    outs = kernel(*plain)
    return outs if isinstance(outs, tuple) else (outs,)


@pytest.mark.parametrize("case", sorted(EVALUATE))
def test_a_kernel_computes_its_mathematics(case):
    loaded, values, kernel, plain = launched(case, EVALUATE[case])
    for a in kernel.built.source.arguments:  # what the allocator hands out next is poison
        torch.full((a.bytes,), 0xFF, dtype=torch.uint8, device="cuda")
    first = called(kernel, plain)
    torch.cuda.synchronize()
    wanted = REFERENCES[case.split("@")[0]](values, loaded.python)
    wanted = [on_device(case, values, x) for x in wanted]
    for value, expected in zip(first, wanted, strict=True):
        assert not misses(value.cpu(), expected)
    func = loaded.module.funcs[loaded.func]
    weights = {n: values[n] for n in func.weights}
    given = [values[p.name] for p in func.params if p.name not in func.weights]
    for value, other, expected in zip(
        first, evaluate(loaded.module, loaded.func, given, weights), wanted, strict=True
    ):
        apart = (value.cpu().double() - other.double()).abs()
        assert bool((apart <= 2 * expected.bound).all())


def load(stream):
    """Work of another kind on ``stream``: products and copies that come and go."""
    a = torch.randn(1024, 1024, device="cuda").bfloat16()
    big = torch.randn(1 << 22, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(REPEATS):
            torch.matmul(a, a)
            big.mul_(1.0)
    return a, big


@pytest.mark.parametrize("case", sorted(EVALUATE))
def test_a_kernel_answers_the_same_bits_each_time_beside_other_work(case):
    _, _, kernel, plain = launched(case, EVALUATE[case], seed=1)
    first = [x.clone().view(torch.uint8) for x in called(kernel, plain)]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    kept = load(stream)
    other = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPEATS):
        for a, b in zip(first, called(kernel, plain), strict=True):
            other += (a != b.view(torch.uint8)).sum()
    torch.cuda.synchronize()
    del kept
    assert int(other) == 0


def test_calls_are_captured_in_a_graph():
    _, _, kernel, plain = launched("softmax", EVALUATE["softmax"])
    (want,) = called(kernel, plain)
    out = torch.empty_like(want)
    kernel.into([out], *plain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.into([out], *plain)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)
