"""Times of work on a CUDA device, by the driver's events and behind a kernel that holds it.

A kernel of ours fills every multiprocessor for a stated time. Meanwhile the host queues the
calls, so that their time on the device has no gaps in it that are the host's, and no kernel on
another stream can begin before the first event is recorded. Functions of the driver are looked up
once, before any author's code is there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from tilefoundry.targets.cuda.host import driver

NAMES = ("cuEventRecord", "cuEventElapsedTime", "cuEventQuery", "cuCtxSynchronize",
         "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2")  # fmt: skip
MULTIPROCESSORS, THREADS_EACH, L2_BYTES = 16, 39, 38
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _MAX_THREADS_PER_MULTIPROCESSOR, _L2_CACHE_SIZE"""
THREADS = 1024
HOLD = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 span) {
    .reg .u64 %rd<4>;
    .reg .pred %p;
    ld.param.u64 %rd0, [span];
    mov.u64 %rd1, %globaltimer;
again:
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p, %rd3, %rd0;
    @%p bra again;
    ret;
}
\0"""
PINNED = 1 << 16
"""Bytes of host memory from which changes are copied."""


class Clock:
    """The clock of one device; its primary context is current in this thread afterwards."""

    def __init__(self, ordinal: int) -> None:
        lib = driver.library()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        driver.check(lib.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        driver.check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "a context")
        driver.check(lib.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        counts = []
        for attribute in (MULTIPROCESSORS, THREADS_EACH, L2_BYTES):
            count = ctypes.c_int()
            driver.check(lib.cuDeviceGetAttribute(ctypes.byref(count), attribute, device),
                         "cuDeviceGetAttribute")  # fmt: skip
            counts.append(count.value)
        self.l2_bytes = counts[2]
        self._blocks = counts[0] * max(1, counts[1] // THREADS)
        self._calls = {name: getattr(lib, name) for name in NAMES}
        self._hold = driver.function(driver.load(HOLD), "hold", 0)
        self._start, self._end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._start, self._end):
            driver.check(lib.cuEventCreate(ctypes.byref(event), 0), "cuEventCreate")
        self._pinned = ctypes.c_void_p()
        driver.check(lib.cuMemHostAlloc(ctypes.byref(self._pinned), PINNED, 0), "cuMemHostAlloc")
        self._read: Any = (ctypes.c_ubyte * 1)()

    def settle(self) -> None:
        """Wait for all work in the context, whichever stream it is on."""
        self._do("cuCtxSynchronize")

    def copied(self, address: int, count: int) -> memoryview:
        """``count`` bytes of the device's memory, until the next are copied; by the driver alone,
        after all work in the context."""
        if len(self._read) < count:
            self._read = (ctypes.c_ubyte * count)()
            ctypes.memset(self._read, 1, count)
        self.settle()
        self._do("cuMemcpyDtoH_v2", self._read, ctypes.c_uint64(address), ctypes.c_size_t(count))
        return memoryview(self._read).cast("B")[:count]

    def time(
        self,
        stream: int,
        held: int,
        changes: Sequence[tuple[int, bytes]],
        run: Callable[[], Any],
        clock: Callable[[], int] = perf_counter_ns,
    ) -> dict[str, Any]:
        """Nanoseconds between two events around ``run`` on ``stream``, after ``held``
        nanoseconds in which the device does nothing else.

        ``changes``: addresses on the device and the bytes that are written there after that and
        before the first event. Also tells the ``wall`` time of all, the ``host`` time of
        ``run``, and whether the device was ``starved``: free before all was queued.
        """
        self.settle()
        at = 0
        begin = clock()
        span = ctypes.c_uint64(held)
        given = (ctypes.c_void_p * 1)(ctypes.addressof(span))
        on = ctypes.c_void_p(stream)
        self._do(
            "cuLaunchKernel", self._hold, self._blocks, 1, 1, THREADS, 1, 1, 0, on, given, None
        )
        for address, data in changes:
            if at + len(data) > PINNED:
                self.settle()
                at = 0
            source = (self._pinned.value or 0) + at
            ctypes.memmove(source, data, len(data))
            self._do("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(source),
                     ctypes.c_size_t(len(data)), on)  # fmt: skip
            at += len(data)
        self._do("cuEventRecord", self._start, on)
        queued = clock()
        run()
        host = clock() - queued
        self._do("cuEventRecord", self._end, on)
        starved = self._calls["cuEventQuery"](self._start) == 0
        self.settle()
        wall = clock() - begin
        elapsed = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.byref(elapsed), self._start, self._end)
        return {"ns": round(elapsed.value * 1e6), "wall": wall, "host": host, "starved": starved}

    def _do(self, name: str, *args: Any) -> None:
        driver.check(self._calls[name](*args), name)
