"""Stores past the caches: whole vectors of registers to memory that is not read again soon.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VMOVNTPS: the address is
a multiple of the vector's bytes, the line is not read first (a plain store reads it, half as
much traffic again for a copy) and not kept. Volume 1, 10.4.6: such stores are weakly ordered;
a core fences them before others may read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.ir.expr import Dim, multiple_of
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import Copy, CopyInstr, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.runs import Piece, held_pieces
from tilefoundry.targets.contract.spoken import CText

SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual"
LINE, LEAST = 64, 16
"""Bytes of a cache line, and of the shortest vector that is stored so."""


@dataclass(frozen=True)
class Streams:
    """A store in vectors of ``bytes``, one element of each lane."""

    bytes: int
    rank: int

    @property
    def repeat(self) -> tuple[int, ...]:
        return (1,) * self.rank

    def text(self) -> str:
        return f"write={self.bytes}B"


def plan(copy: Copy) -> Streams | Unmet:
    """The vectors of the tile, each one contiguous and aligned in memory."""
    memory = copy.target.place()
    for found in (same_bits(copy.source, copy.target), memory):
        if isinstance(found, Unmet):
            return found
    assert isinstance(memory, Place)
    bits, lanes = memory.bits, copy.units
    size = lanes * bits // 8
    if size < LEAST:
        want = f"vectors of {LEAST} bytes or more: {LEAST * 8 // bits} lanes of {bits} bits"
        return Unmet("lanes", want, f"{size} bytes", "T.copy()")
    parts = neighbours(copy.source.type, memory, lanes)
    if isinstance(parts, Unmet):
        return parts
    whole = min(size, LINE) * 8
    steps: list[Dim] = [memory.base, *(p.steps[0] for p in parts if p.unit is None)]
    off = next((s for s in steps if multiple_of(s) * bits % whole), None)
    if off is not None:
        apart = multiple_of(off)
        want = f"every vector at a multiple of {whole // 8} bytes, {whole // bits} elements"
        got = f"one at a multiple of {apart} element{'s' if apart != 1 else ''}"
        fix = f"rows and windows at multiples of {whole // bits} elements, or T.copy()"
        return Unmet("alignment", want, got, fix)
    return Streams(size, len(memory.modes))


def neighbours(held: TensorType, memory: Place, lanes: int) -> tuple[Piece, ...] | Unmet:
    """The pieces of a tile in registers whose lanes hold neighbours in memory, in their order."""
    parts = held_pieces(held, memory)
    count = 1
    for p in parts or ():
        if p.unit is not None:
            count *= p.extent if p.steps == (p.unit.stride,) else 0
    if parts is None or count != lanes:
        want = "one vector of neighbours in memory: lane by lane, each its own element"
        return Unmet("layout", want, f"{held}", f"(..., {lanes} @ lane) innermost")
    return tuple(parts)


CODE = """
/* A vector past the caches, to an address that is a multiple of its bytes (or of a line). */
TF void tf_stream(char *p, const char *x, int bytes) {
#if defined(__AVX512F__) && !defined(TF_MODEL)
    for (; bytes >= 64; bytes -= 64, p += 64, x += 64)
        _mm512_stream_si512((void *)p, _mm512_loadu_si512(x));
#endif
#if defined(__AVX__) && !defined(TF_MODEL)
    for (; bytes >= 32; bytes -= 32, p += 32, x += 32)
        _mm256_stream_si256((void *)p, _mm256_loadu_si256((const void *)x));
    for (; bytes >= 16; bytes -= 16, p += 16, x += 16)
        _mm_stream_si128((void *)p, _mm_loadu_si128((const void *)x));
#endif
    memcpy(p, x, bytes);
}
/* Two vectors that are neighbours, by one store where they are half as long as the longest. */
TF void tf_stream_two(char *p, const char *x, const char *y, int bytes) {
#if defined(__AVX512F__) && !defined(TF_MODEL)
    if (bytes == 32) {
        __m256i low = _mm256_loadu_si256((const void *)x);
        __m256i high = _mm256_loadu_si256((const void *)y);
        _mm512_stream_si512((void *)p, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
        return;
    }
#endif
#if defined(__AVX__) && !defined(TF_MODEL)
    if (bytes == 16) {
        __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const void *)x));
        __m128i high = _mm_loadu_si128((const void *)y);
        _mm256_stream_si256((void *)p, _mm256_insertf128_si256(low, high, 1));
        return;
    }
#endif
    tf_stream(p, x, bytes);
    tf_stream(p + bytes, y, bytes);
}
#define TF_STREAM_TWO(p, a, b) do { \\
    __typeof__(a) tf_a = (a), tf_b = (b); \\
    tf_stream_two((char *)(p), (const char *)&tf_a, (const char *)&tf_b, sizeof tf_a); \\
} while (0)
#define TF_STREAM(p, ...) do { \\
    __typeof__(__VA_ARGS__) tf_v = (__VA_ARGS__); \\
    tf_stream((char *)(p), (const char *)&tf_v, sizeof tf_v); \\
} while (0)
#if defined(__AVX__) && !defined(TF_MODEL)
#define TF_STREAM_END _mm_sfence()
#else
#define TF_STREAM_END (void)0
#endif
"""

CONTRACTS = (
    CopyInstr(
        "x86.StreamStore", (("rmem", "gmem"),), 21, plan,
        (
            "one contiguous vector of the lanes, 16 bytes or more, for each register",
            "every vector at a multiple of its bytes (64 of a longer one) in memory",
        ),
        "avx", source=f"{SDM}, volume 2, VMOVNTPS", level="lane", address=LINE,
        c=CText("TF_STREAM", CODE, pair="TF_STREAM_TWO", settle="TF_STREAM_END;"),
    ),
)  # fmt: skip
