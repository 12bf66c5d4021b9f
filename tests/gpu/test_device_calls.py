"""Calls on a device: by C and by the long way the same; streams, threads, graphs, devices, tensors
that are not as declared."""

from __future__ import annotations

import threading

import pytest
import torch

from programs.reference import inputs
from programs.sizes import EVALUATE, path
from tilefoundry.build import build, callable_of
from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]
WORKING = ("full_sum", "softmax_split", "splitk_two_kernels")
"""Programs with a workspace."""
MAPPED = "gemm_own_storer"
"""One with tensor maps."""


@pytest.fixture(params=["softmax", MAPPED, "rmsnorm", "splitk_cluster", *WORKING])
def called(request):
    return first(request.param)


def first(case):
    """A kernel after its first call, its inputs, and what that call answered."""
    loaded = load_source(path(case), None, EVALUATE[case])
    func = loaded.module.funcs[loaded.func]
    values = inputs({p.name: p.type for p in func.params}, 3)
    kernel = callable_of(build(loaded))
    kernel.weights = {n: values[n].cuda() for n in func.weights}
    plain = [values[p.name].cuda() for p in func.params if p.name not in func.weights]
    return kernel, plain, kernel(*plain)


def same(a, b):
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def made_by_c(kernel, *given):
    """The outputs, where C made and launched all."""
    out = kernel._direct.make(kernel.weights, *given)
    assert not isinstance(out, int), out
    return out


def test_c_and_the_long_way_answer_the_same(called):
    kernel, plain, want = called
    out = torch.empty_like(want)
    kernel._run(kernel._given(plain), [out])
    assert same(out, want)
    assert same(made_by_c(kernel, *plain), want)
    assert kernel._direct.into(kernel.weights, [out.zero_()], *plain) == 0
    assert same(out, want)
    out = made_by_c(kernel, *plain)
    assert (out.shape, out.stride(), out.dtype, out.device) == (
        want.shape, want.stride(), want.dtype, want.device,
    )  # fmt: skip
    assert not out.requires_grad and out.data_ptr() != want.data_ptr()


def test_tensors_that_come_and_go(called):
    """Copies at other addresses each time, and the values of each."""
    kernel, plain, want = called
    kept = []
    for n in range(40):
        given = [x.clone() for x in plain]
        out = made_by_c(kernel, *given)
        kept.append((given, out) if n % 3 else out)
        del given
    torch.cuda.synchronize()
    assert all(same(x[1] if isinstance(x, tuple) else x, want) for x in kept)


def test_other_values_in_the_same_memory():
    kernel, (x,), want = first("softmax")
    x.mul_(-1.0)
    assert same(made_by_c(kernel, x), kernel(x.clone()))
    x.data = torch.zeros_like(x)
    flat = made_by_c(kernel, x)
    assert not same(flat, want) and bool((flat == flat[0, 0]).all())


def test_streams(called):
    """Work on a stream that is behind: results are right there, and the call does not wait."""
    kernel, plain, want = called
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            outs = [kernel(*plain) for _ in range(4)]
            torch.cuda._sleep(50_000_000)
            given = [x.clone() for x in plain]
            outs.append(kernel(*given))
            assert not stream.query()
        stream.synchronize()
        assert all(same(x, want) for x in outs)


def test_threads_that_have_no_context(called):
    kernel, plain, want = called
    found = []

    def work():
        out = torch.empty_like(want)
        kernel.into([out], *plain)
        found.append((out, kernel(*plain)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    torch.cuda.synchronize()
    assert len(found) == 6
    assert all(same(a, want) and same(b, want) for a, b in found)


@pytest.mark.parametrize("case", WORKING)
def test_threads_on_one_stream(case):
    """Launches of two kernels mix; what the first left for the second is each thread's own."""
    kernel, plain, _ = first(case)
    given = [[x * (n + 1) for x in plain] for n in range(4)]
    wanted = [kernel(*g) for g in given]
    found: list[list[torch.Tensor]] = [[] for _ in given]

    def work(n):
        for _ in range(200):
            found[n].append(kernel(*given[n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(given))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    torch.cuda.synchronize()
    assert all(same(x, w) for mine, w in zip(found, wanted, strict=True) for x in mine)


def test_a_counter_of_meetings_goes_round():
    """It counts to twice the CTAs that meet, so that it does not overflow after 2^32 arrivals."""
    kernel, plain, want = first("full_sum")
    (work,) = kernel._work.values()
    ctas = EVALUATE["full_sum"]["CTAS"]
    for n in range(2, 7):
        assert same(kernel(*plain), want)
        torch.cuda.synchronize()
        assert work.view(torch.int32)[ctas].item() == n % 2 * ctas


def test_outputs_have_memory_of_their_own(called):
    kernel, plain, want = called
    if plain[0].nbytes < want.nbytes or plain[0].dtype != want.dtype:
        pytest.skip("its output does not fit into its input")
    inside = plain[0].flatten()[: want.numel()].view(want.shape)
    with pytest.raises(Refusal, match="build-overlap"):
        kernel.into([inside], *plain)
    assert same(kernel(*plain), want)


def test_graphs_are_right_whichever_is_replayed(called):
    """Captured on one stream; the second is replayed and the first never was."""
    kernel, plain, want = called
    graphs = []
    for _ in range(2):
        out = torch.empty_like(want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel.into([out], *plain)
            made = kernel(*plain)
        graphs.append((graph, out.zero_(), made))
    for graph, out, made in (*graphs[1:], *graphs, *graphs[:1]):
        made.zero_()
        out.zero_()
        graph.replay()
        assert same(kernel(*plain), want)  # beside it, on another stream
        torch.cuda.synchronize()
        assert same(out, want) and same(made, want)
    del graphs
    stream = torch.cuda.graph.default_capture_stream  # its captures are over
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        outs = [kernel(*plain) for _ in range(3)]
    stream.synchronize()
    assert all(same(x, want) for x in outs)


def test_a_graph_beside_the_stream_that_it_was_captured_on(called):
    kernel, plain, want = called
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    out = torch.empty_like(want)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel.into([out], *plain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(10):
            kernel.into([out], *plain)
    outs = [torch.empty_like(want) for _ in range(100)]
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        for _ in range(10):
            graph.replay()
    with torch.cuda.stream(stream):
        for x in outs:
            kernel.into([x], *plain)
    torch.cuda.synchronize()
    assert same(out, want) and all(same(x, want) for x in outs)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.float(), lambda x: x[:-1], lambda x: x.T, lambda x: x[None], torch._neg_view,
        lambda x: x.cpu(), lambda x: x.to_sparse(), lambda x: x.to("meta"), lambda x: None,
        lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
        lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype, device=x.device),
        lambda x: x.expand(2, *x.shape)[0].mT.contiguous().mT,
    ],
)  # fmt: skip
def test_what_is_not_as_declared_is_refused_after_right_calls(wrong):
    kernel, (x,), want = first("softmax")
    kernel(x)
    with pytest.raises(Refusal, match="build-argument"):
        kernel(wrong(x))
    with pytest.raises(Refusal, match="build-argument"):
        kernel.into([wrong(want)], x)
    assert same(kernel(x), want)


def test_tensors_that_need_gradients():
    kernel, (x,), want = first("softmax")
    for given in (x.clone().requires_grad_(), torch.nn.Parameter(x.clone()), x * 1.0):
        assert same(made_by_c(kernel, given), want)
    with torch.inference_mode():
        assert same(made_by_c(kernel, x.clone()), want)


def test_memory_of_outputs_is_the_allocators(called):
    """An output that is dropped while its kernel runs is not handed to another stream."""
    kernel, plain, _ = called
    before = torch.cuda.memory_allocated()
    out = made_by_c(kernel, *plain)
    assert torch.cuda.memory_allocated() > before
    out.record_stream(torch.cuda.Stream())
    del out
    torch.cuda.synchronize()
    made_by_c(kernel, *plain)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_devices(called):
    kernel, plain, want = called
    there = [x.to("cuda:1") for x in plain]
    weights, kernel.weights = kernel.weights, {n: x.to("cuda:1") for n, x in kernel.weights.items()}
    outs = [kernel(*there) for _ in range(3)]  # the current device is the first
    assert torch.cuda.current_device() == 0
    assert all(x.device.index == 1 and same(x.to("cuda:0"), want) for x in outs)
    kernel.weights = weights
    with torch.cuda.device(1):
        outs = [kernel(*plain) for _ in range(3)]
        assert torch.cuda.current_device() == 1
    assert all(x.device.index == 0 and same(x, want) for x in outs)
    if len(plain) > 1:
        with pytest.raises(Refusal, match="build-argument"):
            kernel(plain[0], *there[1:])
