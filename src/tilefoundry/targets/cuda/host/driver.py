"""The CUDA driver through ctypes: modules, launches, tensor maps.

CUDA Driver API; enumeration values as its reference gives them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.targets.cuda.emit.launches import LaunchPlan

MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
DATA_TYPES = {"u8": 0, "i8": 0, "bool": 0, "fp8e4m3": 0, "fp8e5m2": 0, "i16": 1, "i32": 3,
              "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
PROMOTION = 2
"""CU_TENSOR_MAP_L2_PROMOTION_L2_128B"""
MAP_BYTES, MAP_ALIGN = 128, 64


@cache
def library() -> Any:
    """libcuda, initialised; refuses a machine without a driver."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        if found.cuInit(0) == 0:
            return found
    refuse("build-driver", None, wanted="libcuda.so.1")


def check(status: int, what: str) -> None:
    """Refuses what the driver answers with an error."""
    if not status:
        return
    text = ctypes.c_char_p()
    library().cuGetErrorString(status, ctypes.byref(text))
    said = text.value.decode() if text.value else "unknown error"
    refuse("build-launch", None, what=what, status=status, error=said)


def load(image: bytes) -> ctypes.c_void_p:
    """A module of the context that is current."""
    module = ctypes.c_void_p()
    check(library().cuModuleLoadData(ctypes.byref(module), image), "cuModuleLoadData")
    return module


def function(module: ctypes.c_void_p, name: str, shared: int) -> ctypes.c_void_p:
    """A kernel that may take ``shared`` bytes of dynamic shared memory."""
    found = ctypes.c_void_p()
    lib = library()
    check(lib.cuModuleGetFunction(ctypes.byref(found), module, name.encode()), name)
    if shared:
        check(lib.cuFuncSetAttribute(found, MAX_DYNAMIC_SHARED, shared),
              f"{shared} bytes of shared memory for {name}")  # fmt: skip
    return found


class Attribute(ctypes.Structure):
    """CUlaunchAttribute with a number for its value."""

    _fields_ = [("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16)]


COOPERATIVE, CLUSTER_DIMENSION, OVERLAPS = 2, 4, 6
"""CU_LAUNCH_ATTRIBUTE_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC_STREAM_SERIALIZATION"""


def attributes(plan: LaunchPlan) -> Any:
    """The attributes of a launch, as an array."""
    made = [Attribute(COOPERATIVE, 0, (1,))] if plan.cooperative else []
    made += [Attribute(CLUSTER_DIMENSION, 0, (plan.cluster, 1, 1))] if plan.cluster > 1 else []
    made += [Attribute(OVERLAPS, 0, (1,))] if plan.overlaps else []
    return (Attribute * len(made))(*made)


def clusters_fit(function: ctypes.c_void_p, plan: LaunchPlan) -> None:
    """Refuses a kernel of which the device can hold not one cluster, or, where its CTAs wait
    for one another, not all of them."""
    if plan.cluster == 1:
        return
    made = config(plan, None, attributes(replace(plan, cooperative=False, overlaps=False)))
    found = ctypes.c_int()
    status = library().cuOccupancyMaxActiveClusters(
        ctypes.byref(found), function, ctypes.byref(made)
    )
    check(status, f"clusters of {plan.cluster} CTAs for {plan.kernel}")
    needed = plan.grid // plan.cluster if plan.cooperative else 1
    if found.value < needed:
        refuse("build-clusters", None, kernel=plan.kernel, cluster=plan.cluster, needed=needed,
               resident=found.value)  # fmt: skip


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
                ("shared", ctypes.c_uint32), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint32)]  # fmt: skip


def config(plan: LaunchPlan, stream: int | None, attributes: Any) -> Config:
    """A plan's launch on a stream, with an array of attributes that the caller keeps."""
    return Config((plan.grid, 1, 1), (plan.threads, 1, 1), plan.shared_bytes, stream, attributes,
                  len(attributes))  # fmt: skip


@cache
def primary(ordinal: int) -> int:
    """The primary context of a device, which torch's tensors and streams belong to."""
    device, found = ctypes.c_int(), ctypes.c_void_p()
    check(library().cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    check(library().cuDevicePrimaryCtxRetain(ctypes.byref(found), device), "a context")
    return found.value or 0


@contextmanager
def within(context: int) -> Iterator[None]:
    """``context`` is current in this thread meanwhile."""
    check(library().cuCtxPushCurrent_v2(ctypes.c_void_p(context)), "cuCtxPushCurrent")
    try:
        yield
    finally:
        library().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def capture(stream: int) -> int | None:
    """The number of the graph capture that ``stream`` takes part in; None if in none."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    said = library().cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None
    )
    check(said, "cuStreamGetCaptureInfo")
    return number.value if status.value else None


@cache
def launcher() -> Any:
    """cuLaunchKernelEx(config, function, parameters, extra)."""
    found = library().cuLaunchKernelEx
    found.argtypes = [ctypes.c_void_p] * 4
    found.restype = ctypes.c_int
    return found


def aligned(size: int, align: int) -> tuple[Any, int]:
    """Host memory and an aligned address in it."""
    data = ctypes.create_string_buffer(size + align)
    return data, -(-ctypes.addressof(data) // align) * align


def encode(
    at: int, dtype: str, address: int, dims: Sequence[int], strides: Sequence[int],
    box: Sequence[int], swizzle: int,
) -> None:  # fmt: skip
    """Writes a tensor map to host address ``at``."""
    rank = len(dims)
    long, word = ctypes.c_uint64, ctypes.c_uint32
    status = library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), DATA_TYPES[dtype], rank, ctypes.c_void_p(address),
        (long * rank)(*dims), (long * max(1, rank - 1))(*strides), (word * rank)(*box),
        (word * rank)(*([1] * rank)), 0, SWIZZLES[swizzle], PROMOTION, 0,
    )  # fmt: skip
    check(status, f"a tensor map of dims {tuple(dims)}, box {tuple(box)}")
