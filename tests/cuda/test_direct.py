"""Calls that C makes: torch's own table reads tensors, on the CPU instead of a device; the
driver is ours and writes down what it is asked for."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tilefoundry.emit.source import Argument
from tilefoundry.ir.dtype import F32
from tilefoundry.targets.cuda.emit.launches import LaunchPlan, MapPlan
from tilefoundry.targets.cuda.host import direct, driver
from tilefoundry.targets.cuda.host.graph import Node

P = ctypes.c_void_p
TENSOR = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, P)
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, P)
ONE, TWO, THREE, FOUR = (ctypes.CFUNCTYPE(ctypes.c_int, *[P] * n) for n in (1, 2, 3, 4))
CONTEXT, WORK = 500, 1 << 20
SHAPE = (4, 8)
ARGUMENTS = [Argument("x", F32, SHAPE, "in"), Argument("w", F32, SHAPE, "weight"),
             Argument("y", F32, SHAPE, "out")]  # fmt: skip
MAP = MapPlan(("argument", 0), "f32", (8, 4), (32,), (8, 4), 0)
PLANS = (
    LaunchPlan("f", 3, 64, 100, False, 2, True, (("argument", 0), ("work", 256)), (MAP,)),
    LaunchPlan("g", 5, 32, 0, True, 1, False, (("work", 256), ("argument", 1), ("argument", 2)),
               ()),
)


class Device:
    """A driver and torch's table, as far as a call needs them. A tensor map is the address that
    it was encoded for."""

    def __init__(self):
        self.stream, self.current, self.answer, self.capturing = 7, CONTEXT, 0, 0
        self.devices = {}
        self.seen, self.contexts = [], []
        self.wait = 0.0
        real = (P * 7).from_address(direct.exchange() or 0)
        self.read = TENSOR(real[5] or 0)
        self.kept = TENSOR(self.tensor), STREAM(self.stream_of)
        self.table = (P * 7)(*real)
        self.table[6] = ctypes.cast(self.kept[1], P).value
        self.launcher = FOUR(self.launch)
        self.library = SimpleNamespace(
            cuTensorMapReplaceAddress=TWO(self.replace), cuCtxGetCurrent=ONE(self.get),
            cuCtxPushCurrent_v2=ONE(self.push), cuCtxPopCurrent_v2=ONE(self.pop),
            cuStreamIsCapturing=TWO(self.is_capturing),
            cuGraphExecKernelNodeSetParams_v2=THREE(self.set), cuGraphLaunch=TWO(self.start),
        )  # fmt: skip

    def tensor(self, x, out):
        status = self.read(x, out)
        ctypes.c_int32.from_address(out + 12).value = self.devices[x.data_ptr()]
        return status

    def stream_of(self, kind, device, out):
        P.from_address(out).value = self.stream + 100 * device
        return 0

    def replace(self, map_, address):
        ctypes.c_uint64.from_address(map_).value = address
        return 0

    def get(self, out):
        P.from_address(out).value = self.current
        return 0

    def push(self, context):
        self.contexts.append(context)
        return 0

    def pop(self, out):
        self.contexts.append(-1)
        return 0

    def is_capturing(self, stream, out):
        ctypes.c_int.from_address(out).value = self.capturing
        return 0

    def launch(self, config, function, parameters, extra):
        time.sleep(self.wait)
        found = driver.Config.from_address(config)
        places = (P * 3).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in places]
        attributes = [found.attributes[n].id for n in range(found.count)]
        self.seen.append(
            (
                function,
                found.grid[0],
                found.block[0],
                found.shared,
                found.stream,
                attributes,
                values,
            )
        )
        return self.answer

    def set(self, ready, node, given):
        found = Node.from_address(given)
        places = (P * 3).from_address(found.parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in places]
        head = (found.function, list(found.grid), list(found.block), found.shared)
        self.seen.append((ready, node, *head, values))
        return self.answer

    def start(self, ready, stream):
        self.seen.append((ready, stream))
        return self.answer

    def made(self, arguments=ARGUMENTS, plans=PLANS, own=True, graph=None):
        maps = [[ctypes.addressof(self.first) for _ in p.maps] for p in plans]
        types = [torch.float32 for _ in arguments]
        out = direct.Direct(
            direct.library(), ctypes.addressof(self.table), arguments, types, plans,
            range(len(arguments)), maps, own,
        )  # fmt: skip
        out.keep((0, 7, threading.get_ident()), CONTEXT, (P * 2)(11, 12), WORK, graph)
        return out

    first = ctypes.create_string_buffer(128)


def launches(x, w, y, stream=7):
    """What the driver is asked for by hand: attributes are COOPERATIVE 2,
    CLUSTER_DIMENSION 4, PROGRAMMATIC_STREAM_SERIALIZATION 6."""
    x, w, y = (t if isinstance(t, int) else t.data_ptr() for t in (x, w, y))
    return [
        (11, 3, 64, 100, stream, [4, 6], [x, WORK + 256, x]),
        (12, 5, 32, 0, stream, [2], [WORK + 256, w, y]),
    ]


@pytest.fixture
def device(monkeypatch):
    if direct.library() is None or direct.exchange() is None:
        pytest.skip("needs a C compiler, and torch with DLPack's table")
    made = Device()
    monkeypatch.setattr(direct, "KIND", 1)  # the CPU
    monkeypatch.setattr(driver, "library", lambda: made.library)
    monkeypatch.setattr(driver, "launcher", lambda: made.launcher)
    empty = lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)  # noqa: E731
    monkeypatch.setattr(direct, "_empty", lambda: empty)
    return made


@pytest.fixture
def tensors():
    return [torch.zeros(SHAPE) for _ in range(3)]


def test_into_tensors_that_are_there(device, tensors):
    x, w, y = tensors
    call = device.made()
    for outs in ([y], (y,)):
        assert call.into({"w": w}, outs, x) == 0
    assert device.seen == launches(x, w, y) * 2
    assert not device.contexts


def test_outputs_are_made(device, tensors):
    x, w, _ = tensors
    y = device.made().make({"w": w}, x)
    assert y.shape == SHAPE and y.stride() == (8, 1) and y.dtype is torch.float32
    assert device.seen == launches(x, w, y)


def test_several_outputs_are_a_tuple(device, tensors):
    arguments = [*ARGUMENTS, Argument("z", F32, SHAPE, "out")]
    plans = (LaunchPlan("f", 1, 32, 0, False, 1, False, tuple(("argument", n) for n in (3, 2, 0)),
                        ()),)
    x, w, _ = tensors
    y, z = device.made(arguments, plans).make({"w": w}, x)
    assert device.seen[0][-1] == [z.data_ptr(), y.data_ptr(), x.data_ptr()]


def test_addresses_are_those_of_the_call(device, tensors):
    """A tensor's memory, a weight or an output that changes between calls."""
    x, w, y = tensors
    call, weights = device.made(), {"w": w}
    call.into(weights, [y], x)
    x.data = torch.ones(SHAPE)
    call.into(weights, [y], x)
    weights["w"] = v = torch.ones(SHAPE)
    call.into(weights, [w], x)
    assert device.seen[2:] == launches(x, w, y) + launches(x, v, w)


def accepted():
    whole = torch.zeros(6, 8)
    return {
        "a view": whole[2:],
        "a parameter": torch.nn.Parameter(torch.zeros(SHAPE)),
        "needs a gradient": torch.zeros(SHAPE, requires_grad=True),
        "has a graph": torch.zeros(SHAPE, requires_grad=True) * 1.0,
        "inference": torch.inference_mode()(torch.zeros)(SHAPE),
        "real part": torch.zeros(SHAPE, dtype=torch.cfloat).abs(),
    }


@pytest.mark.parametrize("name", accepted())
def test_tensors_that_are_as_declared(device, tensors, name):
    _, w, y = tensors
    given = accepted()[name]
    assert device.made().into({"w": w}, [y], given) == 0
    assert device.seen == launches(given, w, y)


class Mine(torch.Tensor):
    """A subclass, whose memory need not be what it stands for."""


def left():
    whole = torch.zeros(64)
    gone = torch.zeros(SHAPE)
    gone.untyped_storage().resize_(0)
    return {
        "element type": torch.zeros(SHAPE, dtype=torch.int32),
        "width": torch.zeros(SHAPE).double(),
        "rank": torch.zeros(1, 4, 8),
        "extents": torch.zeros(8, 4),
        "transposed": torch.zeros(8, 4).T,
        "strided": torch.zeros(4, 16)[:, ::2],
        "broadcast": torch.zeros(8).expand(SHAPE),
        "address": whole[1:33].view(SHAPE),
        "negated": torch._neg_view(torch.zeros(SHAPE)),
        "complex": torch.zeros(4, 4, dtype=torch.cfloat),
        "conjugate": torch.zeros(SHAPE, dtype=torch.cfloat).conj(),
        "zeros without memory": torch._efficientzerotensor(SHAPE),
        "freed": gone,
        "sparse": torch.eye(8)[:4].to_sparse(),
        "meta": torch.zeros(SHAPE, device="meta"),
        "subclass": torch.zeros(SHAPE).as_subclass(Mine),
        "numpy": np.zeros(SHAPE, np.float32),
        "nothing": None,
        "a number": 1.0,
    }


@pytest.mark.parametrize("name", left())
@pytest.mark.parametrize("role", ["in", "weight", "out"])
def test_what_is_not_as_declared_is_left_to_the_caller(device, tensors, name, role):
    """After calls with right tensors; Python's error state is clean afterwards."""
    x, w, y = tensors
    call, wrong = device.made(), left()[name]
    assert call.into({"w": w}, [y], x) == 0
    if role == "in":
        assert call.make({"w": w}, wrong) == direct.ELSEWHERE
    given = [
        wrong if r == role else t for r, t in zip(("in", "weight", "out"), tensors, strict=True)
    ]
    assert call.into({"w": given[1]}, [given[2]], given[0]) == direct.ELSEWHERE
    assert len(device.seen) == 2


def test_a_tensor_that_vmap_wraps_is_left(device, tensors):
    _, w, y = tensors
    call, seen = device.made(), []

    def inside(x):
        seen.append(call.into({"w": w}, [y], x))
        return x

    torch.func.vmap(inside)(torch.zeros(2, *SHAPE))
    assert seen == [direct.ELSEWHERE] and not device.seen


def test_the_wrong_number_of_tensors_is_left(device, tensors):
    x, w, y = tensors
    call = device.made()
    for wrong in (
        lambda: call.make({"w": w}), lambda: call.make({"w": w}, x, x), lambda: call.make({}, x),
        lambda: call.make(None, x), lambda: call.make(), lambda: call.into({"w": w}),
        lambda: call.into({"w": w}, [], x), lambda: call.into({"w": w}, [y, y], x),
        lambda: call.into({"w": w}, None, x), lambda: call.into({"w": w}, [y]),
    ):  # fmt: skip
        assert wrong() == direct.ELSEWHERE
    assert not device.seen


def test_streams_that_are_not_known_are_left(device, tensors):
    x, w, y = tensors
    call = device.made()
    device.stream = 8
    assert call.into({"w": w}, [y], x) == direct.ELSEWHERE
    call.keep((0, 8, threading.get_ident()), CONTEXT, (P * 2)(11, 12), WORK)
    assert call.into({"w": w}, [y], x) == 0
    assert device.seen == launches(x, w, y, stream=8)


def test_more_streams_than_are_kept(device, tensors):
    x, w, y = tensors
    call, functions = device.made(), (P * 2)(11, 12)
    for stream in range(1000, 1000 + 2 * direct.SLOTS):
        call.keep((0, stream, threading.get_ident()), CONTEXT, functions, WORK)
        device.stream = stream
        assert call.into({"w": w}, [y], x) == 0
        assert device.seen[-1][4] == stream


def test_each_device_has_its_own_functions(device, tensors):
    x, w, y = tensors
    call = device.made()
    device.table[5] = ctypes.cast(device.kept[0], P).value
    device.devices = {x.data_ptr(): 0} | {t.data_ptr(): 1 for t in (w, y)}
    assert call.into({"w": w}, [y], x) == direct.ELSEWHERE  # on two devices
    device.devices[x.data_ptr()] = 1
    assert call.into({"w": w}, [y], x) == direct.ELSEWHERE  # not known
    call.keep((1, 107, threading.get_ident()), CONTEXT + 1, (P * 2)(21, 22), WORK)
    assert call.into({"w": w}, [y], x) == 0
    assert [s[0] for s in device.seen] == [21, 22]
    assert device.contexts == [CONTEXT + 1, -1]


def test_another_current_device_is_put_back(device, tensors):
    x, w, y = tensors
    call = device.made()
    device.current = 0  # a thread that has none
    assert call.into({"w": w}, [y], x) == 0
    assert device.contexts == [CONTEXT, -1]
    assert call.make({"w": w}, x) == direct.ELSEWHERE  # where should outputs be made


@pytest.mark.parametrize("own", [True, False])
def test_a_capture_asks_for_a_workspace_of_its_own(device, tensors, own):
    x, w, y = tensors
    call = device.made(own=own)
    device.capturing = 1
    assert call.into({"w": w}, [y], x) == (direct.ELSEWHERE if own else 0)


def test_the_drivers_errors_are_answered(device, tensors):
    x, w, y = tensors
    device.answer = 719
    call = device.made()
    assert call.into({"w": w}, [y], x) == 719
    assert call.make({"w": w}, x) == 719
    assert len(device.seen) == 2  # nothing is launched after an error


def test_calls_of_many_threads_have_their_own_parameters(device):
    """A launch takes its time and other threads call meanwhile."""
    device.wait = 0.002
    call, wrong = device.made(own=False), []

    def work():
        x, w, y = (torch.zeros(SHAPE) for _ in range(3))
        mine = launches(x, w, y)
        for _ in range(10):
            call.into({"w": w}, [y], x)
            device_seen = [s for s in device.seen if y.data_ptr() in s[-1]]
            if not all(s in mine for s in device_seen):
                wrong.append(device_seen)
        found = [s for s in device.seen if s in mine]
        if len(found) != 20:
            wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_workspace_is_one_threads(device, tensors):
    x, w, y = tensors
    call, found = device.made(), []

    def work():
        found.append(call.into({"w": w}, [y], x))
        call.keep((0, 7, threading.get_ident()), CONTEXT, (P * 2)(11, 12), WORK + 4096)
        found.append(call.into({"w": w}, [y], x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [direct.ELSEWHERE, 0]
    assert device.seen[0][-1][1] == WORK + 4096 + 256
    assert call.into({"w": w}, [y], x) == 0
    assert device.seen[2:] == launches(x, w, y)


@pytest.mark.parametrize("far", [-28, -4, 0, 4, 28])
def test_outputs_that_share_memory_are_left(device, far):
    whole = torch.zeros(3, 4, 8)
    flat = whole.flatten()
    x, w = whole[1], torch.zeros(SHAPE)
    call = device.made()
    y = flat[32 + far : 64 + far].view(SHAPE)
    assert call.into({"w": w}, [y], x) == direct.ELSEWHERE
    assert call.into({"w": y}, [x], w) == direct.ELSEWHERE
    assert call.into({"w": w}, [whole[0]], x) == call.into({"w": w}, [whole[2]], x) == 0
    two = [*ARGUMENTS, Argument("z", F32, SHAPE, "out")]
    assert device.made(two).into({"w": w}, [y, x], torch.zeros(SHAPE)) == direct.ELSEWHERE


def test_a_context_that_cannot_be_entered_is_not_left(device, tensors):
    x, w, y = tensors
    device.push = lambda context: 201
    device.library.cuCtxPushCurrent_v2 = ONE(device.push)
    call = device.made()
    device.current = 0
    assert call.into({"w": w}, [y], x) == 201
    assert not device.contexts and not device.seen


def test_more_tensors_or_launches_than_c_takes_and_no_lock(device, monkeypatch):
    def made(count, plans=PLANS):
        arguments = [Argument(f"x{n}", F32, SHAPE, "in") for n in range(count - 1)]
        arguments.append(ARGUMENTS[-1])
        maps = [[ctypes.addressof(Device.first) for _ in p.maps] for p in plans]
        types = [torch.float32] * count
        return direct.direct(arguments, types, plans, range(count), maps, False)

    assert made(direct.MOST) is not None
    assert made(direct.MOST + 1) is None
    assert made(3, PLANS * 300) is None
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert made(3) is None


def test_nothing_is_held_after_a_call(device, tensors):
    x, w, y = tensors
    call, weights, outs = device.made(), {"w": w}, [y]
    objects = (x, w, y, weights, outs, torch.Tensor, None)
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(1000):
        call.into(weights, outs, x)
        call.into(weights, outs, None)
        call.make(weights, x)
    after = [sys.getrefcount(o) for o in objects]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))
    function = call.into
    del call
    assert function(weights, outs, x) == 0  # what C reads lives as long as the function


GRAPH = SimpleNamespace(ready=900, nodes=(P * 2)(31, 32))
START = (900, 7)


def nodes(x, w, y, work=WORK):
    """What the nodes of both launches are given."""
    x, w, y = (t.data_ptr() for t in (x, w, y))
    return [(900, 31, 11, [3, 1, 1], [64, 1, 1], 100, [x, work + 256, x]),
            (900, 32, 12, [5, 1, 1], [32, 1, 1], 0, [work + 256, w, y])]  # fmt: skip


def test_a_graph_is_given_what_is_new_to_it(device, tensors):
    x, w, y = tensors
    call = device.made(graph=GRAPH)
    for _ in range(2):
        assert call.into({"w": w}, [y], x) == 0
    assert device.seen == [*nodes(x, w, y), START, START]
    device.seen.clear()
    z = torch.zeros(SHAPE)
    assert call.into({"w": w}, [y], z) == call.into({"w": w}, [z], z.clone()) == 0
    assert [s[1] for s in device.seen] == [31, 7, 31, 32, 7]
    assert device.seen[0] == nodes(z, w, y)[0] and device.seen[3] == nodes(x, w, z)[1]
    device.seen.clear()
    made = call.make({"w": w}, x)
    assert device.seen == [*nodes(x, w, made), START]


def test_a_graph_has_not_what_the_driver_refused(device, tensors):
    x, w, y = tensors
    call = device.made(graph=GRAPH)
    device.answer = 719
    assert call.into({"w": w}, [y], x) == 719
    assert device.seen == nodes(x, w, y)[:1]
    device.answer = 0
    assert call.into({"w": w}, [y], x) == 0
    assert device.seen[1:] == [*nodes(x, w, y), START]
    device.answer = 700
    assert call.into({"w": w}, [y], x) == 700  # of the start


def test_a_graph_is_one_threads_and_no_captures(device, tensors):
    x, w, y = tensors
    call, found = device.made(graph=GRAPH), []
    other = SimpleNamespace(ready=901, nodes=(P * 2)(41, 42))

    def work():
        found.append(call.into({"w": w}, [y], x))
        call.keep((0, 7, threading.get_ident()), CONTEXT, (P * 2)(11, 12), WORK, other)
        found.append(call.into({"w": w}, [y], x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [direct.ELSEWHERE, 0]
    assert [s[0] for s in device.seen] == [901, 901, 901]
    device.capturing = 1
    assert call.into({"w": w}, [y], x) == direct.ELSEWHERE


def test_a_graph_that_is_kept_again_keeps_what_it_was_given(device, tensors):
    x, w, y = tensors
    call = device.made(graph=GRAPH)
    assert call.into({"w": w}, [y], x) == 0
    for _ in range(direct.SLOTS + 1):
        call.keep((0, 7, threading.get_ident()), CONTEXT, (P * 2)(11, 12), WORK, GRAPH)
        assert call.into({"w": w}, [y], x) == 0
    assert device.seen == [*nodes(x, w, y), *[START] * (direct.SLOTS + 2)]
