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
         "cuLaunchKernel", "cuMemcpyDtoH_v2")  # fmt: skip
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
RENEW = """
.visible .entry renew{bits}(
    .param .u64 to, .param .u64 base, .param .u64 mask, .param .u64 count, .param .u64 period
) {{
    .reg .u64 %rd<9>;
    .reg .u32 %r<3>;
    .reg .{kind} %a, %b;
    .reg .pred %p;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    cvt.u64.u32 %rd0, %r2;
    mad.wide.u32 %rd0, %r0, %r1, %rd0;
    ld.param.u64 %rd1, [count];
    setp.ge.u64 %p, %rd0, %rd1;
    @%p ret;
    ld.param.u64 %rd2, [to];
    ld.param.u64 %rd3, [base];
    ld.param.u64 %rd4, [mask];
    mad.lo.u64 %rd5, %rd0, {bytes}, %rd3;
    ld.global.u{bits} %a, [%rd5];
    setp.eq.u64 %p, %rd4, 0;
    @%p bra flipped;
    ld.param.u64 %rd8, [period];
    rem.u64 %rd6, %rd0, %rd8;
    mad.lo.u64 %rd6, %rd6, {bytes}, %rd4;
    ld.global.u{bits} %b, [%rd6];
    xor.{kind} %a, %a, %b;
flipped:
    mad.lo.u64 %rd7, %rd0, {bytes}, %rd2;
    st.global.u{bits} [%rd7], %a;
    ret;
}}
"""
"""Elements of one memory into another, their bits flipped by a mask that begins again after
``period`` of them; by none where its address is 0."""
FLUSHED = 3
"""Times the second cache that other data goes through it, before data is called cold."""


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
        bits = {8: "b32", 16: "b32", 32: "b32", 64: "b64"}
        renew = "".join(RENEW.format(bits=n, kind=k, bytes=n // 8) for n, k in bits.items())
        code = driver.load(HOLD.rstrip(b"\0") + renew.encode() + b"\0")
        self._hold = driver.function(code, "hold", 0)
        self._renew = {n // 8: driver.function(code, f"renew{n}", 0) for n in bits}
        self._other, self._words = ctypes.c_uint64(), -(-FLUSHED * self.l2_bytes // 16)
        driver.check(lib.cuMemAlloc_v2(ctypes.byref(self._other), 16 * self._words), "cuMemAlloc")
        self._start, self._end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._start, self._end):
            driver.check(lib.cuEventCreate(ctypes.byref(event), 0), "cuEventCreate")
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

    def renew(
        self, stream: int, to: int, base: int, mask: int, count: int, item: int, period: int
    ) -> None:
        """Write ``count`` elements of ``item`` bytes at ``to``: those at ``base``, flipped by the
        ``mask``, which begins again after ``period`` of them; 0 is none."""
        numbers = [ctypes.c_uint64(n) for n in (to, base, mask, count, period)]
        given = (ctypes.c_void_p * 5)(*map(ctypes.addressof, numbers))
        self._do("cuLaunchKernel", self._renew[item], -(-count // THREADS), 1, 1, THREADS, 1, 1, 0,
                 ctypes.c_void_p(stream), given, None)  # fmt: skip

    def flush(self, stream: int) -> None:
        """Fill the second cache with other data."""
        first = self._other.value
        self.renew(stream, first, first + 8 * self._words, 0, self._words, 8, 1)

    def time(
        self,
        stream: int,
        held: int,
        run: Callable[[], Any],
        renewed: Sequence[Sequence[int]] = (),
        cold: bool = False,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> dict[str, Any]:
        """Nanoseconds between two events around ``run`` on ``stream``, after ``held``
        nanoseconds in which the device does nothing else.

        ``renewed``: what :meth:`renew` writes before; ``cold``: whether other data goes through
        the second cache after that. Also tells the ``wall`` time from there on, the ``host`` time
        of ``run``, and whether the device was ``starved``: free before all was queued.
        """
        for row in renewed:
            self.renew(stream, *row)
        if cold:
            self.flush(stream)
        self.settle()
        begin = clock()
        span = ctypes.c_uint64(held)
        given = (ctypes.c_void_p * 1)(ctypes.addressof(span))
        on = ctypes.c_void_p(stream)
        self._do(
            "cuLaunchKernel", self._hold, self._blocks, 1, 1, THREADS, 1, 1, 0, on, given, None
        )
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
