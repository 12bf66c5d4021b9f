"""The host's side without a device: what the driver says when it is not there."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from programs.sizes import EVALUATE, EXAMPLES, path
from tilefoundry.build import Built, build
from tilefoundry.build.cache import Entry
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.targets.cuda.emit.launches import LaunchPlan
from tilefoundry.targets.cuda.host import call, compiler, driver, graph, state


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


@pytest.mark.parametrize("maker", ["nvcc", "NVRTC"])
def test_the_same_source_is_the_same_cubin_wherever_it_is_compiled(maker, tmp_path, monkeypatch):
    """Whoever compiles for himself, as a jailed child does, has what was checked."""
    monkeypatch.chdir(EXAMPLES)
    if maker == "NVRTC":
        monkeypatch.setenv("NVCC", str(tmp_path / "no-nvcc"))
    compiler.compiler.cache_clear()
    try:
        _, version = compiler.compiler()
    except Refusal:
        version = ""
    if ("NVRTC" in version) != (maker == "NVRTC") or not version:
        compiler.compiler.cache_clear()
        pytest.skip(f"needs {maker}")
    source = emit(finalize(load_source("softmax.py", None, EVALUATE["softmax"]))[0])
    made = []
    for n, place in enumerate(("a", "another")):
        monkeypatch.setenv("TILEFOUNDRY_CACHE", str(tmp_path / place))
        monkeypatch.chdir(EXAMPLES if n == 0 else tmp_path)
        made.append(compiler.compiled(source).library)
    compiler.compiler.cache_clear()
    assert made[0] != made[1]
    assert made[0].read_bytes() == made[1].read_bytes()


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


def test_the_state_is_that_of_the_drivers_device(monkeypatch):
    """nvidia-smi numbers all devices by their place on the bus; the driver those that are visible,
    in another order."""
    places = {0: b"0000:DB:00.0", 1: b"0000:1B:00.0"}

    class Counting(Driver):
        def cuDeviceGet(self, device, ordinal):
            device._obj.value = ordinal + 40
            return 0 if ordinal in places else 101

        def cuDeviceGetPCIBusId(self, text, size, device):
            text.value = places[device.value - 40]
            assert size > len(text.value)
            return 0

    def run(words, **more):
        (place,) = (w.removeprefix("--id=") for w in words if w.startswith("--id="))
        fields = words[-1].removeprefix("--query-gpu=").split(",")
        said = ", ".join([f"card at {place}", *("7" for _ in fields[1:])])
        return SimpleNamespace(stdout=said + "\n", returncode=0)

    monkeypatch.setattr(driver, "library", Counting)
    monkeypatch.setattr(state.subprocess, "run", run)
    assert state.state(0)["name"] == "card at 0000:DB:00.0"
    assert state.state(1)["name"] == "card at 0000:1B:00.0"
    assert state.state(2) == {}


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

    def is_neg(self):
        return False

    def stride(self):
        return (1,)


class Launching(Driver):
    """A driver whose current context and captures are stated."""

    capturing = None

    def __init__(self):
        self.contexts = []

    def cuDeviceGet(self, found, ordinal):
        found._obj.value = ordinal
        return 0

    def cuDevicePrimaryCtxRetain(self, found, device):
        found._obj.value = 500 + device.value
        return 0

    def cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, found):
        self.contexts.pop()
        return 0

    def cuStreamGetCaptureInfo_v2(self, stream, status, number, *rest):
        status._obj.value, number._obj.value = self.capturing is not None, self.capturing or 0
        return 0


@pytest.fixture(params=["chain"])
def launched(request, tmp_path, monkeypatch):
    """A program's callable with a driver that writes down what it is asked for; every call goes
    the long way."""
    source = emit(finalize(load_source(path(request.param), None, EVALUATE[request.param]))[0])
    library = tmp_path / "program.cubin"
    library.write_bytes(b"image")
    built = Built("softmax", "nvidia.h200_sxm", source, Entry("key", tmp_path, library, True), {})
    seen = []

    def launch(config, function, parameters, extra):
        found = driver.Config.from_address(config)
        places = (ctypes.c_void_p * 2).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in places]
        seen.append((list(found.grid), list(found.block), found.stream, found.count, values))
        return 0

    kept, stated = LAUNCH(launch), Launching()
    stream = SimpleNamespace(cuda_stream=99)
    driver.primary.cache_clear()
    monkeypatch.setattr(driver, "launcher", lambda: kept)
    monkeypatch.setattr(driver, "library", lambda: stated)
    monkeypatch.setattr(driver, "load", lambda image: seen.append(("load", *stated.contexts)))
    monkeypatch.setattr(driver, "function", lambda *given: ctypes.c_void_p(7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(call, "direct", lambda *given: None)
    yield call.Compiled(built), seen, stated
    driver.primary.cache_clear()
    assert not stated.contexts


def test_parameters_of_a_launch(launched):
    kernel, seen, _ = launched
    shape = (1, 512, 512)
    x, y, z = (Tensor(torch.float16, shape, n << 20, device=1) for n in (1, 2, 3))
    kernel.into([y], x)
    kernel.into([z], x)
    # 2 x 4 CTAs of 256 threads, on the caller's stream, not cooperative
    head = ([8, 1, 1], [256, 1, 1], 99, 0)
    assert seen == [("load", 501), (*head, [1 << 20, 2 << 20]), (*head, [1 << 20, 3 << 20])]


def test_outputs_have_memory_of_their_own(launched):
    kernel, seen, _ = launched
    shape, size = (1, 512, 512), 512 * 512 * 2
    x = Tensor(torch.float16, shape, 1 << 20)
    for at in (1 << 20, (1 << 20) + size - 16, (1 << 20) - size + 16):
        with pytest.raises(Refusal, match="build-overlap"):
            kernel.into([Tensor(torch.float16, shape, at)], x)
    assert not seen
    for at in ((1 << 20) + size, (1 << 20) - size):
        kernel.into([Tensor(torch.float16, shape, at)], x)


@pytest.mark.parametrize("launched", ["softmax_split"], indirect=True)
def test_a_graph_has_a_workspace_of_its_own(launched, monkeypatch):
    """Zeros that a graph writes are written when it is replayed: what was made in a capture is
    never used outside of it, nor by another graph."""
    kernel, seen, stated = launched
    made = iter(range(1, 9))
    zeros = lambda *given, **more: Tensor(None, given, 1000 * next(made))  # noqa: E731
    monkeypatch.setattr(torch, "zeros", zeros)
    (x,), (y,) = kernel._inputs, kernel._outputs
    tensors = [Tensor(getattr(torch, a.dtype.torch), a.shape, n << 20)
               for n, a in enumerate((y, x), 1)]  # fmt: skip
    for stated.capturing in (3, 3, 4, None, 5, None):
        kernel.into(tensors[:1], tensors[1])
    works = [min(values) // 1000 for *_, values in seen[1:]]  # of two launches
    assert works == [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3]


@pytest.mark.parametrize("launched", ["softmax_split"], indirect=True)
def test_a_thread_has_a_workspace_of_its_own(launched, monkeypatch):
    """Two threads' launches may mix on a stream: what the first kernel of one call leaves is for
    the second of the same call."""
    kernel, seen, _ = launched
    made = iter(range(1, 9))
    zeros = lambda *given, **more: Tensor(None, given, 1000 * next(made))  # noqa: E731
    monkeypatch.setattr(torch, "zeros", zeros)
    (x,), (y,) = kernel._inputs, kernel._outputs
    out, given = (Tensor(getattr(torch, a.dtype.torch), a.shape, n << 20)
                  for n, a in enumerate((y, x), 1))  # fmt: skip
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as other:
        for where in (pool, other, other, pool):
            where.submit(kernel.into, [out], given).result()
            where.submit(kernel.into, [out], given).result()
    works = [min(values) // 1000 for *_, values in seen[1:]]
    assert works[4:12] == [works[4]] * 8 and works[4] not in works[:4]


@pytest.mark.parametrize(
    "wrong",
    [
        Tensor(torch.bfloat16, (1, 512, 512), 4096),
        Tensor(torch.float16, (512, 512), 4096),
        Tensor(torch.float16, (1, 512, 512), 4098),
        Tensor(torch.float16, (1, 512, 512), 4096, device=1),
        Tensor(torch.float16, (1, 512, 512), 0),
        torch.zeros(1, 512, 512, dtype=torch.float16),
        torch.zeros(1, 512, 512, dtype=torch.float16, device="meta"),
        torch.zeros(1, 512, 512).to_sparse(),
        [1.0],
    ],
)
def test_what_a_kernel_cannot_take(launched, wrong):
    kernel, seen, _ = launched
    right = Tensor(torch.float16, (1, 512, 512), 8192)
    with pytest.raises(Refusal, match="build-argument"):
        kernel.into([right], wrong)
    assert not seen


def test_the_attributes_of_a_launch():
    """CUDA Driver API, CUlaunchAttributeID: 2 is COOPERATIVE, 4 CLUSTER_DIMENSION,
    6 PROGRAMMATIC_STREAM_SERIALIZATION."""
    plan = LaunchPlan("f", 8, 128, 0, True, 4, False, (), ())
    found = [(a.id, list(a.value)[:3]) for a in driver.attributes(plan)]
    assert found == [(2, [1, 0, 0]), (4, [4, 1, 1])]
    plan = LaunchPlan("f", 8, 128, 0, False, 1, True, (), ())
    assert [(a.id, list(a.value)[:1]) for a in driver.attributes(plan)] == [(6, [1])]
    assert not len(driver.attributes(LaunchPlan("f", 8, 128, 0, False, 1, False, (), ())))


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
    plan = LaunchPlan("f", grid, 128, 0, cooperative, 4, False, (), ())
    if fits:
        driver.clusters_fit(ctypes.c_void_p(7), plan)
        return
    with pytest.raises(Refusal) as refusal:
        driver.clusters_fit(ctypes.c_void_p(7), plan)
    assert refusal.value.diags[0].code == "build-clusters"
    assert refusal.value.diags[0].fields["needed"] == 31


class Graphs:
    """A driver that numbers what it makes and writes down what it is asked for."""

    def __init__(self, refuses=""):
        self.refuses, self.seen, self.made = refuses, [], 100

    def _asked(self, name, *what):
        self.seen.append((name, *what))
        return 801 if name == self.refuses else 0

    def _number(self, found):
        self.made += 1
        found._obj.value = self.made
        return self.made

    def cuGetErrorString(self, status, text):
        return 0

    def cuGraphCreate(self, found, flags):
        return self._asked("graph", self._number(found))

    def cuGraphAddKernelNode_v2(self, found, graph, before, count, given):
        node = given._obj
        made = (node.function, list(node.grid), list(node.block), node.shared, node.parameters)
        return self._asked("node", self._number(found), graph.value, before, count.value, *made)

    def cuGraphKernelNodeSetAttribute(self, node, name, value):
        return self._asked("attribute", node.value, name, list(value._obj)[:3])

    def cuGraphAddDependencies_v2(self, graph, before, after, edge, count):
        e = edge._obj
        kind = (e.port, e.to, e.kind, bytes(e.reserved))
        return self._asked("edge", before._obj.value, after._obj.value, kind, count.value)

    def cuGraphInstantiateWithFlags(self, found, graph, flags):
        return self._asked("ready", self._number(found), graph.value)

    def cuGraphExecDestroy(self, ready):
        return self._asked("ready gone", ready.value)

    def cuGraphDestroy(self, graph):
        return self._asked("graph gone", graph.value)


SEVERAL = (
    LaunchPlan("f", 8, 128, 64, False, 4, True, (), ()),
    LaunchPlan("g", 5, 32, 0, False, 1, True, (), ()),
    LaunchPlan("h", 6, 96, 0, True, 1, False, (), ()),
)


def test_a_graph_of_launches(monkeypatch):
    """Each waits for the one before: for its end (an edge of zeros), or where the kernel waits
    itself for its signal, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC and
    CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, both 1. Attribute 6 is of streams alone."""
    asked = Graphs()
    monkeypatch.setattr(driver, "library", lambda: asked)
    made = graph.graph(SEVERAL, (11, 12, 13), (21, 22, 23))
    none = bytes(5)
    assert asked.seen == [
        ("graph", 101),
        ("node", 102, 101, None, 0, 11, [8, 1, 1], [128, 1, 1], 64, 21),
        ("attribute", 102, 4, [4, 1, 1]),
        ("node", 103, 101, None, 0, 12, [5, 1, 1], [32, 1, 1], 0, 22),
        ("edge", 102, 103, (1, 0, 1, none), 1),
        ("node", 104, 101, None, 0, 13, [6, 1, 1], [96, 1, 1], 0, 23),
        ("attribute", 104, 2, [1, 0, 0]),
        ("edge", 103, 104, (0, 0, 0, none), 1),
        ("ready", 105, 101),
    ]
    assert (made.ready, list(made.nodes)) == (105, [102, 103, 104])
    del made
    assert asked.seen[9:] == [("ready gone", 105), ("graph gone", 101)]


def test_launches_that_are_no_graph(monkeypatch):
    asked = Graphs("edge")
    monkeypatch.setattr(driver, "library", lambda: asked)
    assert graph.graph(SEVERAL[:1], (11,), (21,)) is None and not asked.seen
    assert graph.graph(SEVERAL, (11, 12, 13), (21, 22, 23)) is None
    assert asked.seen[-1][0] == "graph gone"
    monkeypatch.delattr(Graphs, "cuGraphAddDependencies_v2")  # before CUDA 12.3
    assert graph.graph(SEVERAL, (11, 12, 13), (21, 22, 23)) is None
