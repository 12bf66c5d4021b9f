"""Calls that one C function makes, without Python's interpreter (``rt/tf_call.c``).

The function is compiled once with the system's C compiler. Where there is none, or torch does
not carry DLPack's table of functions (before 2.10), every call goes the long way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tilefoundry.build.compiler import compiled
from tilefoundry.diag import Refusal
from tilefoundry.emit.source import Argument, Source
from tilefoundry.targets.cuda.emit.launches import LaunchPlan, Where
from tilefoundry.targets.cuda.host import driver
from tilefoundry.targets.cuda.host.graph import Graph

CODE = Path(__file__).parents[1] / "rt" / "tf_call.c"
MOST, SLOTS, STACK = 64, 64, 1 << 16
"""Tensors of a call, streams that are known at once, bytes for the parameters of all launches."""
MAJOR = 1
"""DLPack's version, whose table this is."""
KIND = 2
"""A CUDA device, by DLPack's number."""
ELSEWHERE = -1
"""The answer to a call that has to go the long way."""
DRIVER = ("cuTensorMapReplaceAddress", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
          "cuCtxPopCurrent_v2", "cuStreamIsCapturing", "cuGraphExecKernelNodeSetParams_v2",
          "cuGraphLaunch")  # fmt: skip


class CWhere(ctypes.Structure):
    """``Where`` of the C code: a tensor of the call, or -1 and a byte of the workspace."""

    _fields_ = [("argument", ctypes.c_int32), ("byte", ctypes.c_uint64)]


class CLaunch(ctypes.Structure):
    """``Launch`` of the C code."""

    _fields_ = [("config", driver.Config), ("pointers", ctypes.c_int32), ("maps", ctypes.c_int32),
                ("places", ctypes.POINTER(CWhere)), ("encoded", ctypes.c_void_p),
                ("address", ctypes.POINTER(ctypes.c_void_p))]  # fmt: skip


class CArgument(ctypes.Structure):
    """``Argument`` of the C code."""

    _fields_ = [("dims", ctypes.c_int64), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("bytes", ctypes.c_uint64), ("type", ctypes.c_uint32),
                ("weight", ctypes.py_object)]  # fmt: skip


class CGraph(ctypes.Structure):
    """``Graph`` of the C code: launches that the driver has ready as one."""

    _fields_ = [("ready", ctypes.c_void_p), ("nodes", ctypes.POINTER(ctypes.c_void_p)),
                ("set", ctypes.c_void_p)]  # fmt: skip


class CSlot(ctypes.Structure):
    """``Slot`` of the C code: what a call needs of a stream of a device."""

    _fields_ = [("stream", ctypes.c_void_p), ("context", ctypes.c_void_p),
                ("functions", ctypes.POINTER(ctypes.c_void_p)), ("work", ctypes.c_void_p),
                ("graph", ctypes.POINTER(CGraph)), ("thread", ctypes.c_ulong),
                ("device", ctypes.c_int32)]  # fmt: skip


class CCall(ctypes.Structure):
    """``Call`` of the C code."""

    _fields_ = [("exchange", ctypes.c_void_p), ("launch", ctypes.c_void_p),
                ("driver", ctypes.c_void_p * len(DRIVER)), ("objects", ctypes.py_object * 5),
                ("made", ctypes.POINTER(ctypes.py_object)), ("kind", ctypes.c_int32),
                ("inputs", ctypes.c_int32), ("outputs", ctypes.c_int32),
                ("launches", ctypes.c_int32), ("room", ctypes.c_int32), ("own", ctypes.c_int32),
                ("arguments", ctypes.POINTER(CArgument)), ("launch_of", ctypes.POINTER(CLaunch)),
                ("used", ctypes.c_int32), ("slots", CSlot * SLOTS)]  # fmt: skip


@cache
def library() -> Any | None:
    """The C functions; None where they cannot be had."""
    text = {CODE.name: CODE.read_text(encoding="utf-8")}
    try:
        made = compiled(Source("tf_call", "cpu", text, text, "tf_call", (), 0, ()))
        return ctypes.PyDLL(str(made.library))
    except (Refusal, OSError):
        return None


@cache
def exchange() -> int | None:
    """The address of torch's table of functions; None where it has none that we know."""
    import torch

    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    at = kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dlpack_exchange_api")
    functions = (ctypes.c_void_p * 7).from_address(at)
    known = ctypes.c_uint32.from_address(at).value == MAJOR and functions[5] and functions[6]
    return at if known else None


@cache
def code_of(dtype: Any) -> int | None:
    """A torch dtype as the table tells it: code, bits and lanes; None if it cannot."""
    import torch

    class Tensor(ctypes.Structure):
        _fields_ = [("head", ctypes.c_uint8 * 20), ("type", ctypes.c_uint32),
                    ("rest", ctypes.c_void_p * 3)]  # fmt: skip

    table = (ctypes.c_void_p * 7).from_address(exchange() or 0)
    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(table[5] or 0)
    found = Tensor()
    try:
        status = read(torch.empty(1, dtype=dtype), ctypes.addressof(found))
    except Exception:  # torch's own, for types that DLPack has not
        return None
    return None if status else found.type


class Direct:
    """``make(weights, *inputs)`` answers the outputs, ``into(weights, outputs, *inputs)`` 0;
    either a number instead: the driver's status, or ELSEWHERE.

    ``arguments``: those of a call in order, outputs last; ``plans`` with the tensor maps of each
    as they are encoded for some addresses."""

    def __init__(
        self, lib: Any, table: int, arguments: Sequence[Argument], types: Sequence[Any],
        plans: Sequence[LaunchPlan], order: Sequence[int], maps: Sequence[Sequence[int]],
        own: bool,
    ) -> None:  # fmt: skip
        import torch

        outputs = [a for a in arguments if a.role == "out"]
        words = [(a.shape, _strides(a.shape), t) for a, t in zip(arguments, types, strict=True)]
        made = words[len(arguments) - len(outputs) :]
        rows = [_argument(a, t) for a, t in zip(arguments, types, strict=True)]
        launches = [_launch(p, order, m) for p, m in zip(plans, maps, strict=True)]
        self._call = c = CCall()
        c.exchange, c.launch = table, ctypes.cast(driver.launcher(), ctypes.c_void_p)
        lib_driver = driver.library()
        c.driver[:] = [ctypes.cast(getattr(lib_driver, n), ctypes.c_void_p).value for n in DRIVER]
        c.objects[:] = [torch.Tensor, torch.nn.Parameter, torch.Tensor.is_neg, False, _empty()]
        c.made = (ctypes.py_object * max(1, len(made)))(*made)
        c.kind = KIND
        c.inputs, c.outputs = len(arguments) - len(outputs), len(outputs)
        c.launches, c.own = len(launches), own
        c.room = max(8, *(8 * p.pointers + driver.MAP_BYTES * p.maps for p, _ in launches))
        c.arguments = (CArgument * len(rows))(*(row for row, _ in rows))
        c.launch_of = (CLaunch * len(launches))(*(x for x, _ in launches))
        self._functions: dict[int, Any] = {}
        self._graphs: dict[tuple[int, int, int], Any] = {}
        """By device, stream and thread."""
        kept = [c, made, rows, launches, driver.launcher(), lib_driver, self._functions,
                self._graphs]  # fmt: skip
        function = lib.tf_function
        function.restype = ctypes.py_object
        function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_int]
        at = ctypes.addressof(c)
        self.make: Callable[..., Any] = function(at, kept, 0)
        self.into: Callable[..., int] = function(at, kept, 1)

    def keep(
        self, where: tuple[int, int, int], context: int, functions: Any, work: int,
        graph: Graph | None = None,
    ) -> None:  # fmt: skip
        """Calls on this device and stream, if slots are a thread's own those of this thread, may
        be made directly; ``functions``: an array of the launches'; ``graph``: they as one."""
        c, (device, stream, thread) = self._call, where
        if c.used == SLOTS:
            c.used = 0
        ready = self._graph(where, graph) if graph is not None else None
        c.slots[c.used] = CSlot(stream, context, functions, work, ready, thread, device)
        c.used += 1
        self._functions[device] = functions

    def _graph(self, where: tuple[int, int, int], graph: Graph) -> Any:
        """A graph as C takes it, kept as long as workspaces are: a call may be starting it."""
        if where not in self._graphs:
            given = ctypes.create_string_buffer(self._call.room * len(graph.nodes))
            made = CGraph(graph.ready, graph.nodes, ctypes.addressof(given))
            self._graphs[where] = ctypes.pointer(made), graph, given
        return self._graphs[where][0]


def _empty() -> Any:
    """What makes a tensor on the current device of extents, strides and dtype."""
    import torch

    # not a public function: past the dispatcher, where it is there
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found = getattr(guards, "_empty_strided_cuda", None)
    if found is not None:
        return found

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")

    return empty


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    out = [1]
    for extent in shape[:0:-1]:
        out.insert(0, out[0] * extent)
    return tuple(out[: len(shape)])


def _argument(a: Argument, dtype: Any) -> tuple[CArgument, Any]:
    extents = (ctypes.c_int64 * max(1, len(a.shape)))(*a.shape)
    row = CArgument(len(a.shape), extents, a.bytes, code_of(dtype) or 0)
    if a.role == "weight":
        row.weight = a.name
    return row, extents


def _launch(plan: LaunchPlan, order: Sequence[int], maps: Sequence[int]) -> tuple[CLaunch, Any]:
    """The launch of a plan; ``order``: the place in a call of each argument of the program."""

    def of(where: Where) -> CWhere:
        return CWhere(order[where[1]], 0) if where[0] == "argument" else CWhere(-1, where[1])

    attributes = driver.attributes(plan)
    places = [*map(of, plan.pointers), *(of(m.where) for m in plan.maps)]
    wheres = (CWhere * max(1, len(places)))(*places)
    data, at = driver.aligned(driver.MAP_BYTES * len(maps), driver.MAP_ALIGN)
    for n, encoded in enumerate(maps):
        ctypes.memmove(at + driver.MAP_BYTES * n, encoded, driver.MAP_BYTES)
    address = (ctypes.c_void_p * max(1, len(maps)))()
    config = driver.config(plan, None, attributes)
    made = CLaunch(config, len(plan.pointers), len(plan.maps), wheres, at, address)
    return made, (attributes, wheres, data, address, config)


def direct(
    arguments: Sequence[Argument], types: Sequence[Any], plans: Sequence[LaunchPlan],
    order: Sequence[int], maps: Sequence[Sequence[int]], own: bool,
) -> Direct | None:  # fmt: skip
    """``own``: slots are a thread's own, and captures go the long way.

    None where a call has too many tensors or launches, what it takes is not there, or threads
    share what C takes for its own (Python without the global lock)."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    largest = max(8 * len(p.pointers) + driver.MAP_BYTES * len(p.maps) for p in plans)
    if 2 * largest * len(plans) > STACK:
        return None
    table = exchange()
    lib = library() if table is not None else None
    if lib is None or table is None or not 0 < len(arguments) <= MOST:
        return None
    if any(code_of(t) is None for t in types):
        return None
    return Direct(lib, table, arguments, types, plans, order, maps, own)
