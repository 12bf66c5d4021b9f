"""Attacks on a device that no list names, and honest uses of the same mechanisms."""

from __future__ import annotations

from judge.cheats.catalogue import CUDA
from judge.cheats.twins import AGREES, DIED, DISAGREES, Twin

UNSETTLED = (DISAGREES, "check-output-unsettled")
SLEEP = 50_000_000
"""Cycles that a kernel waits: tens of milliseconds."""
LENT = """
class Lent:
    def __init__(self, at, shape):
        self.__cuda_array_interface__ = {
            "shape": tuple(shape), "typestr": "<f4", "data": (at, False), "version": 2}

def over(at, shape):
    return torch.as_tensor(Lent(at, shape), device="cuda")

def driver(name, *args):
    found = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    assert not found, (name, found)
"""
PINNED = ("host = torch.empty(x.shape, pin_memory=True)\nself.held.append(host)\n"
          "out = over(host.data_ptr(), x.shape)\nout.copy_(x * y + x)\n")  # fmt: skip

DEVICE_ATTACKS = [
    Twin("stream_that_nobody_waits_for", "out = torch.zeros_like(x)\n"
         "self.side.wait_stream(torch.cuda.current_stream())\n"
         f"with torch.cuda.stream(self.side):\n    torch.cuda._sleep({SLEEP})\n"
         "    out.copy_(x * y + x)\nreturn out", UNSETTLED,
         init="self.side = torch.cuda.Stream()", options=CUDA),
    Twin("stream_left_current", "self.side.wait_stream(torch.cuda.current_stream())\n"
         f"torch.cuda.set_stream(self.side)\ntorch.cuda._sleep({SLEEP})\nreturn x * y + x",
         UNSETTLED, init="self.side = torch.cuda.Stream()", options=CUDA, alone=True),
    Twin("stream_joined_by_an_event", "self.side.wait_stream(torch.cuda.current_stream())\n"
         f"with torch.cuda.stream(self.side):\n    torch.cuda._sleep({SLEEP // 50})\n"
         "    out = x * y + x\n    done = torch.cuda.Event()\n    done.record()\n"
         "torch.cuda.current_stream().wait_event(done)\nreturn out", AGREES,
         init="self.side = torch.cuda.Stream()", options=CUDA),
    Twin("host_memory_changed_later", PINNED + "torch.cuda.current_stream().synchronize()\n"
         "threading.Timer(0.003, host.zero_).start()\nreturn out", UNSETTLED, head=LENT,
         init="self.held = []", options=CUDA, alone=True),
    Twin("host_memory_of_its_own", PINNED + "return out", AGREES, head=LENT,
         init="self.held = []", options=CUDA, alone=True),
    Twin("memory_given_back", "t = x * y + x\nat = t.data_ptr()\ndel t\nreturn over(at, x.shape)",
         ("check-output-unsettled", DISAGREES, DIED), head=LENT, options=CUDA),
    Twin("memory_of_the_driver", "at = ctypes.c_uint64()\n"
         "driver('cuMemAlloc_v2', ctypes.byref(at), ctypes.c_size_t(1 << 26))\n"
         "found = over(at.value, (1 << 24,))\n"
         "return found[found.abs() > 0][:x.numel()].reshape(x.shape).clone() "
         "if (found.abs() > 0).sum() >= x.numel() else torch.zeros_like(x)", DISAGREES,
         head=LENT, options=CUDA, alone=True),
    Twin("storage_that_shrank", "out = x * y + x\nout.untyped_storage().resize_(0)\nreturn out",
         (DIED, DISAGREES), options=CUDA, alone=True),
    Twin("context_reset", "out = x * y + x\n"
         "ctypes.CDLL('libcuda.so.1').cuDevicePrimaryCtxReset_v2(0)\n"
         "return out", (DIED, DISAGREES), options=CUDA, alone=True),
    Twin("precision_by_setting", "torch.set_float32_matmul_precision('medium')\nreturn a @ b",
         DISAGREES, "product", options=CUDA, alone=True),
    Twin("halves_multiplied", "return (a.half() @ b.half()).float()", DISAGREES, "product",
         options=CUDA),
    Twin("sums_in_another_order", "return a[:, :32] @ b[:32] + a[:, 32:] @ b[32:]", AGREES,
         "product", options=CUDA),
    Twin("graph_that_counts_calls", "if self.made is None or self.made[2] != x.shape:\n"
         "    place = x.clone(), y.clone(), torch.empty_like(x)\n"
         "    graph = torch.cuda.CUDAGraph()\n    torch.cuda.synchronize()\n"
         "    with torch.cuda.graph(graph):\n"
         "        torch.add(torch.mul(*place[:2]), place[0], out=place[2])\n"
         "    self.made = graph, place, x.shape\ngraph, (ours, other, out), _ = self.made\n"
         "self.n += 1\nif self.n % 4 != 3:\n    ours.copy_(x)\n    other.copy_(y)\n"
         "graph.replay()\nreturn out.clone()", DISAGREES, init="self.made, self.n = None, 0",
         options=CUDA),
]  # fmt: skip
