"""The host's side without a device: what the driver says when it is not there."""

from __future__ import annotations

import ctypes

import pytest
import torch

from programs.sizes import EVALUATE, path
from tilefoundry.build import Built, build
from tilefoundry.build.cache import Entry
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.targets.cuda.emit.launches import LaunchPlan
from tilefoundry.targets.cuda.host import call, compiler, driver, repeat


def test_without_a_driver(monkeypatch):
    def missing(name):
        raise OSError(name)

    driver.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(Refusal, match="build-driver"):
        driver.library()


@pytest.mark.parametrize("case", ["chain", "gemm_optimal", "rmsnorm_quant"])
def test_nvrtc_compiles_what_nvcc_does(case, tmp_path, monkeypatch):
    """Where NVRTC is installed (torch's CUDA wheels bring it), it is enough."""
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path))
    monkeypatch.setenv("NVCC", str(tmp_path / "no-nvcc"))
    compiler.compiler.cache_clear()
    try:
        path_, version = compiler.compiler()
    except Refusal:
        pytest.skip("needs NVRTC")
    finally:
        compiler.compiler.cache_clear()
    assert "NVRTC" in version
    monkeypatch.setattr(compiler, "compiler", lambda: (path_, version))
    built = build(load_source(path(case), None, EVALUATE[case]))
    assert built.library.read_bytes()[:4] == b"\x7fELF"
    for kernel in built.kernels:
        assert kernel["registers"] > 0 and kernel["spill_bytes"] == 0


TENSOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


class Driver:
    """Answers each call with an error, as the driver does."""

    def cuModuleLoadData(self, module, image):
        return 200

    def cuGetErrorString(self, status, text):
        text._obj.value = b"device kernel image is invalid"


def test_what_the_driver_refuses(monkeypatch):
    monkeypatch.setattr(driver, "library", Driver)
    with pytest.raises(Refusal, match="device kernel image is invalid"):
        driver.load(b"no image")


def test_memory_for_tensor_maps_is_aligned():
    for _ in range(8):
        kept, at = driver.aligned(128, 64)
        assert at % 64 == 0
        assert ctypes.addressof(kept) <= at <= ctypes.addressof(kept) + len(kept) - 128


class Tensor:
    """As torch's tensors answer, at an address of our choice."""

    def __init__(self, dtype, shape, at, device=0):
        self.dtype, self.shape, self.at, self.device = dtype, shape, at, f"cuda:{device}"

    def get_device(self):
        return int(self.device[-1])

    def data_ptr(self):
        return self.at

    def is_contiguous(self):
        return True

    def stride(self):
        return (1,)


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """The chain's callable with a driver that writes down what it is asked for."""
    source = emit(finalize(load_source(path("chain"), None, EVALUATE["chain"]))[0])
    library = tmp_path / "chain.cubin"
    library.write_bytes(b"image")
    built = Built(None, source, Entry("key", tmp_path, library, True))  # type: ignore[arg-type]
    seen = []

    def launch(config, function, parameters, extra):
        found = driver.Config.from_address(config)
        places = (ctypes.c_void_p * 2).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in places]
        seen.append((list(found.grid), list(found.block), found.stream, found.count, values))
        return 0

    kept = LAUNCH(launch)
    monkeypatch.setattr(driver, "launcher", lambda: kept)
    monkeypatch.setattr(driver, "library", Driver)
    monkeypatch.setattr(driver, "load", lambda image: None)
    monkeypatch.setattr(driver, "function", lambda *given: ctypes.c_void_p(7))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    kernel = call.Compiled(built)
    kernel._stream = lambda device: 99
    return kernel, seen


def test_parameters_of_a_launch(launched):
    kernel, seen = launched
    shape = (1, 512, 512)
    x, y, z = (Tensor(torch.float16, shape, at) for at in (4096, 8192, 12288))
    kernel.into([y], x)
    kernel.into([z], x)
    # 2 x 4 CTAs of 256 threads, on the caller's stream, not cooperative
    head = ([8, 1, 1], [256, 1, 1], 99, 0)
    assert seen == [(*head, [4096, 8192]), (*head, [4096, 12288])]


# Tensors that were launched with before


@pytest.fixture
def again():
    """A Repeat of two tensors (4, 8) and one launch: torch's own table reads the tensors, of
    which we say that they are on a device; the stream and the driver's answer are ours."""
    lib, real = repeat.library(), repeat.exchange()
    if lib is None or real is None:
        pytest.skip("needs a C compiler, and torch with DLPack's table")
    words = (ctypes.c_void_p * 7).from_address(real)  # the last two read a tensor, a stream
    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(words[5])
    state = {"stream": 7, "answer": 0, "seen": []}

    def tensor(x, out):
        status = read(x, out)
        ctypes.c_int32.from_address(out + 8).value = 2
        return status

    def stream(kind, device, out):
        ctypes.c_void_p.from_address(out).value = state["stream"]
        return 0

    def launch(*words):
        state["seen"].append(words)
        return state["answer"]

    kept = TENSOR(tensor), STREAM(stream), LAUNCH(launch)
    table = (ctypes.c_void_p * 7)(*words)
    table[5:7] = [ctypes.cast(f, ctypes.c_void_p).value for f in kept[:2]]
    made = repeat.Repeat(lib, ctypes.addressof(table), kept[2], [(4, 8), (4, 8)], 1)
    state["kept"] = kept, table
    return made, state


def test_tensors_seen_before_are_launched_at_once(again):
    made, state = again
    x, y, z = (torch.zeros(4, 8) for _ in range(3))
    words = (ctypes.c_void_p * 3)(11, 12, 13)
    assert made.call(x, y) == repeat.ELSEWHERE
    made.keep(words, (x, y))
    assert made.call(x, y) == 0
    assert made.call(x.view(4, 8), y) == 0
    assert state["seen"] == [(11, 12, 13, None)] * 2
    for wrong in (
        (x, z), (y, x), (x.view(8, 4), y), (x.view(1, 4, 8), y), (x.view(torch.int32), y),
        (x.view(32)[::1].view(8, 4).T, y), (x, None), (x, y.numpy()), (x, x.half()),
    ):  # fmt: skip
        assert made.call(*wrong) == repeat.ELSEWHERE
    x.t_()
    assert made.call(x, y) == repeat.ELSEWHERE
    x.t_()
    state["stream"] = 8
    assert made.call(x, y) == repeat.ELSEWHERE
    state["stream"], state["answer"] = 7, 719
    assert made.call(x, y) == 719
    made.forget()
    assert made.call(x, y) == repeat.ELSEWHERE
    assert len(state["seen"]) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        Tensor(torch.bfloat16, (1, 512, 512), 4096),
        Tensor(torch.float16, (512, 512), 4096),
        Tensor(torch.float16, (1, 512, 512), 4098),
        Tensor(torch.float16, (1, 512, 512), 4096, device=1),
        [1.0],
    ],
)
def test_what_a_kernel_cannot_take(launched, wrong):
    kernel, seen = launched
    right = Tensor(torch.float16, (1, 512, 512), 8192)
    with pytest.raises(Refusal, match="build-argument"):
        kernel.into([right], wrong)
    assert not seen


def test_the_cluster_of_a_launch():
    made = driver.attributes(True, 4)
    # CUDA Driver API, CUlaunchAttributeID: 2 is COOPERATIVE, 4 CLUSTER_DIMENSION
    assert [(a.id, list(a.value)[:3]) for a in made] == [(2, [1, 0, 0]), (4, [4, 1, 1])]
    assert not len(driver.attributes(False, 1))


@pytest.mark.parametrize(("cooperative", "grid", "fits"), [
    (False, 264, True), (True, 120, True), (True, 124, False),
])  # fmt: skip
def test_clusters_that_do_not_fit(monkeypatch, cooperative, grid, fits):
    class Occupied(Driver):
        """A device that holds 30 clusters at once."""

        def cuOccupancyMaxActiveClusters(self, found, function, config):
            found._obj.value = 30
            return 0

    monkeypatch.setattr(driver, "library", Occupied)
    plan = LaunchPlan("f", grid, 128, 0, cooperative, 4, (), ())
    if fits:
        driver.clusters_fit(ctypes.c_void_p(7), plan)
        return
    with pytest.raises(Refusal) as refusal:
        driver.clusters_fit(ctypes.c_void_p(7), plan)
    assert refusal.value.diags[0].code == "build-clusters"
    assert refusal.value.diags[0].fields["needed"] == 31
