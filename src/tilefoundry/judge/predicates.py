"""Predicates: what "these outputs agree" means, stated by the caller, never by us.

Each reads elements in chunks of whole rows as float64 (integers as int64) and keeps what its
verdict needs. With ``nan_inf`` stated, elements that are NaN or infinite in the reference are
its business alone; else a NaN never agrees and an infinity only with itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tilefoundry.judge.numbers import PART, Array, alike, decode, spell_value, ulp_distance
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor

FIRST = 1 << 14


@dataclass(frozen=True)
class Finding:
    """What one predicate found on one output.

    ``value`` is the measured quantity (for ``allclose`` the largest difference over its
    tolerance; for ``equal`` and ``nan_inf`` the number of elements outside). ``differ`` counts
    elements that do not have the same value, ``outside`` those beyond the bound (None where the
    bound is on the whole). ``index`` is the first outside, or the farthest off where the bound
    is on the whole; ``spelled`` its two values with every digit that tells them apart.
    """

    predicate: Predicate
    passed: bool
    value: float
    count: int
    differ: int
    outside: int | None
    index: tuple[int, ...] | None = None
    got: float | int | None = None
    expected: float | int | None = None
    spelled: tuple[str, str] = ("", "")


class Chunk:
    """Some rows of both tensors, with what predicates share; ``got`` are stored elements."""

    def __init__(self, got: Array, ref: RawTensor, at: int, stop: int, masked: bool) -> None:
        self.at = at
        self.dtype = ref.dtype
        self.raw = got, ref.flat[at:stop]
        self.got, self.ref = decode(got, ref.dtype), ref.values(at, stop)
        self.masked = masked
        self.judged = np.isfinite(self.ref) if masked else np.ones(self.ref.shape, bool)
        self.everywhere = not masked or bool(self.judged.all())

    @cached_property
    def same(self) -> Array:
        """Which elements have the same value; NaN has none."""
        return self.got == self.ref

    @cached_property
    def differ(self) -> int:
        """Elements of different values; two NaN are the same where ``nan_inf`` is stated."""
        same = self.same
        if self.masked:
            same = same | np.isnan(self.got) & np.isnan(self.ref)
        return int(same.size - np.count_nonzero(same))

    @cached_property
    def off(self) -> Array:
        """Absolute difference; infinite where one is NaN, 0 where not judged."""
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(self.got - self.ref)
        if np.isfinite(off).all():  # then both are finite everywhere
            return off
        off = np.where(self.same, 0, off)
        off = np.where(np.isnan(off), np.inf, off)
        return np.where(self.judged, off, 0)

    @cached_property
    def size(self) -> Array:
        """Magnitude of the reference; 0 where not judged."""
        return self.held(np.abs(self.ref))

    def held(self, values: Array) -> Array:
        """Values with 0 where they are not judged."""
        return values if self.everywhere else np.where(self.judged, values, 0)


class Tally:
    """What a predicate has seen so far; subclasses give ``wrong`` or their own sums."""

    elementwise = True

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.bounds = predicate.bounds
        self.count = 0
        self.differ = 0
        self.outside = 0
        self.value: float = 0.0
        self.place: int | None = None
        self.farthest = -1.0

    def add(self, chunk: Chunk) -> None:
        """Take in a chunk."""
        self.count += chunk.ref.size
        wrong, value = self.see(chunk)
        self.value = max(self.value, value)
        outside = int(np.count_nonzero(wrong))
        self.differ += chunk.differ
        self.outside += outside
        if not outside:
            return
        if self.elementwise:
            if self.place is None:
                self.place = chunk.at + int(np.argmax(wrong))
            return
        worst = int(np.argmax(chunk.off))
        if chunk.off[worst] > self.farthest:
            self.farthest, self.place = float(chunk.off[worst]), chunk.at + worst

    def see(self, chunk: Chunk) -> tuple[Array, float]:
        """Which elements are wrong, and the largest value of the measured quantity."""
        raise NotImplementedError

    def verdict(self) -> tuple[bool, float]:
        """Passed or not, and the measured quantity."""
        return self.outside == 0, self.value


def _largest(values: Array) -> float:
    return float(values.max()) if values.size else 0.0


def _scale(*arrays: Array) -> float:
    """The power of two, so that scaling rounds nothing, at the largest finite magnitude; 0 where
    there is none but 0."""
    sizes = [max(_largest(x), -float(x.min())) for x in arrays if x.size]
    largest = max(filter(math.isfinite, sizes), default=0.0)
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 0.0


class AllClose(Tally):
    def see(self, chunk: Chunk) -> tuple[Array, float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            room = self.bounds["atol"] + self.bounds["rtol"] * chunk.size
            ratio = np.where(chunk.off == 0, 0.0, chunk.off / room)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        return ~(chunk.off <= room), _largest(ratio)


class MaxAbs(Tally):
    def see(self, chunk: Chunk) -> tuple[Array, float]:
        return chunk.off > self.bounds["max"], _largest(chunk.off)


class MaxRel(Tally):
    def see(self, chunk: Chunk) -> tuple[Array, float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(chunk.off == 0, 0.0, chunk.off / chunk.size)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        return ratio > self.bounds["max"], _largest(ratio)


class Ulp(Tally):
    def see(self, chunk: Chunk) -> tuple[Array, float]:
        apart = ulp_distance(*chunk.raw, chunk.dtype)
        apart = np.where(np.isnan(chunk.got) | np.isnan(chunk.ref), np.inf, apart)
        apart = np.where(chunk.judged, apart, 0)
        return apart > self.bounds["max"], _largest(apart)


class Equal(Tally):
    def see(self, chunk: Chunk) -> tuple[Array, float]:
        return chunk.judged & ~chunk.same, 0.0

    def verdict(self) -> tuple[bool, float]:
        return self.outside == 0, float(self.outside)


class NanInf(Equal):
    """Places of NaN, of infinity and of minus infinity are the same."""

    def see(self, chunk: Chunk) -> tuple[Array, float]:
        got, ref = chunk.got, chunk.ref
        nan = np.isnan(got) != np.isnan(ref)
        inf = np.where(np.isinf(got), got, 0) != np.where(np.isinf(ref), ref, 0)
        return nan | inf, 0.0


def _dot(a: Array, b: Array) -> float:
    """The sum of products on this thread alone: a library's threads would wait for each other
    while the judged processes run."""
    return float(np.einsum("i,i", a, b))


class Whole(Tally):
    """A bound on the tensor as a whole: sums over squares, of types of 64 bits scaled by the
    largest magnitude seen, so that they neither overflow nor vanish."""

    elementwise = False

    def __init__(self, predicate: Predicate) -> None:
        super().__init__(predicate)
        self.scale = 0.0
        self.sums: Array = np.zeros(3)

    def see(self, chunk: Chunk) -> tuple[Array, float]:
        got, ref = chunk.held(chunk.got), chunk.held(chunk.ref)
        wrong = chunk.off != 0
        if chunk.dtype.bits > 32:
            scale = _scale(got, ref)
            if scale > self.scale:
                self.sums *= (self.scale / scale) ** 2
                self.scale = scale
            if not self.scale:
                if wrong.any():
                    self.sums[0] = np.inf
                return wrong, 0.0
            got, ref = got / self.scale, ref / self.scale
        with np.errstate(invalid="ignore", over="ignore"):
            self.sums += self.products(got, ref)
        return wrong, 0.0

    def products(self, got: Array, ref: Array) -> Array:
        raise NotImplementedError


class RelL2(Whole):
    def products(self, got: Array, ref: Array) -> Array:
        off = got - ref
        if math.isnan(squares := _dot(off, off)):  # an infinity is not off itself
            off = np.where(got == ref, 0, off)
            squares = _dot(off, off)
        return np.array([squares, _dot(ref, ref), 0])

    def verdict(self) -> tuple[bool, float]:
        off, size, _ = self.sums
        if off == 0:
            value = 0.0
        elif size == 0 or not math.isfinite(off) or not math.isfinite(size):
            value = math.inf
        else:
            value = math.sqrt(off / size)
        return value <= self.bounds["max"], value


class Cosine(Whole):
    def products(self, got: Array, ref: Array) -> Array:
        return np.array([_dot(got, ref), _dot(got, got), _dot(ref, ref)])

    def verdict(self) -> tuple[bool, float]:
        dot, got, ref = self.sums
        whole = math.isfinite(dot) and 0 < got * ref < math.inf
        value = dot / math.sqrt(got * ref) if whole else math.nan
        return value >= self.bounds["min"], float(value)


TALLIES: Mapping[str, type[Tally]] = {
    "allclose": AllClose,
    "rel_l2": RelL2,
    "cosine": Cosine,
    "max_abs": MaxAbs,
    "max_rel": MaxRel,
    "ulp": Ulp,
    "equal": Equal,
    "nan_inf": NanInf,
}


def compare(predicates: Sequence[Predicate], got: RawTensor, ref: RawTensor) -> list[Finding]:
    """Each predicate's finding on two tensors of the same element type and shape."""
    if ref.is_finite and alike(got.flat, ref.flat):
        return [_identical(p, ref) for p in predicates]
    tallies = _tallies(predicates)
    masked = _masked(predicates)
    for at, stop in chunks(ref):
        chunk = Chunk(got.flat[at:stop], ref, at, stop, masked)
        for tally in tallies:
            tally.add(chunk)
    return [_finding(tally, got, ref) for tally in tallies]


def _tallies(predicates: Sequence[Predicate]) -> list[Tally]:
    return [TALLIES[p.fn](p) for p in predicates]


def _masked(predicates: Sequence[Predicate]) -> bool:
    return any(p.fn == "nan_inf" for p in predicates)


def _identical(predicate: Predicate, ref: RawTensor) -> Finding:
    """The finding on two tensors of the same finite values."""
    count = ref.count
    if predicate.fn == "cosine":
        value = 1.0 if np.any(ref.flat) and np.any(ref.values()) else math.nan
        return Finding(predicate, value >= predicate.bounds["min"], value, count, 0, None)
    outside = 0 if TALLIES[predicate.fn].elementwise else None
    return Finding(predicate, True, 0.0, count, 0, outside)


def meets(
    predicates: Sequence[Predicate], ref: RawTensor, made: Callable[[int, int], Array]
) -> bool | None:
    """Whether a tensor, whose stored elements ``made(at, stop)`` gives chunk by chunk, meets all
    predicates; None if it has the reference's values. Ends where an element decides."""
    tallies, masked, same = _tallies(predicates), _masked(predicates), True
    skips = ref.is_finite and all(tally.elementwise for tally in tallies)
    for at, stop in rising(ref):
        raw = made(at, stop)
        if skips and alike(raw, ref.flat[at:stop]):
            continue
        chunk = Chunk(raw, ref, at, stop, masked)
        for tally in tallies:
            tally.add(chunk)
        same = same and np.array_equal(chunk.got, chunk.ref, equal_nan=ref.dtype.is_float)
        if not same and any(t.elementwise and t.outside for t in tallies):
            return False
    return None if same else all(tally.verdict()[0] for tally in tallies)


def misplaced(got: RawTensor, ref: RawTensor) -> tuple[int, tuple[int, ...]] | None:
    """How many NaN and infinities stand elsewhere than in the reference, and the first place;
    None if the patterns are the same."""
    if not ref.dtype.is_float or (got.is_finite and ref.is_finite):
        return None
    tally = NanInf(Predicate("nan_inf"))
    for at, stop in chunks(ref):
        tally.add(Chunk(got.flat[at:stop], ref, at, stop, True))
    if tally.place is None:
        return None
    return tally.outside, tuple(int(i) for i in np.unravel_index(tally.place, ref.shape))


def chunks(tensor: RawTensor) -> list[tuple[int, int]]:
    """Ranges of elements of whole rows, a chunk's worth each."""
    row = tensor.shape[-1] if tensor.shape else 1
    step = max(row, PART // max(row, 1) * row, 1)
    return [(at, min(at + step, tensor.count)) for at in range(0, tensor.count, step)]


def rising(tensor: RawTensor) -> Iterator[tuple[int, int]]:
    """Ranges of whole rows, small ones first: what is decided early costs little."""
    row = tensor.shape[-1] if tensor.shape else 1
    at, step = 0, FIRST
    while at < tensor.count:
        stop = min(at + max(step // max(row, 1), 1) * row, tensor.count)
        yield at, stop
        at, step = stop, min(4 * step, PART)


def _finding(tally: Tally, got: RawTensor, ref: RawTensor) -> Finding:
    passed, value = tally.verdict()
    outside = tally.outside if tally.elementwise else None
    found = Finding(tally.predicate, passed, value, tally.count, tally.differ, outside)
    if tally.place is None:
        return found
    at = tally.place
    index = tuple(int(i) for i in np.unravel_index(at, ref.shape))
    pair: list[Any] = [x.values(at, at + 1)[0].item() for x in (got, ref)]
    spelled = spell_value(pair[0], got.dtype), spell_value(pair[1], ref.dtype)
    return replace(found, index=index, got=pair[0], expected=pair[1], spelled=spelled)


def _norms(rows: Array) -> Array:
    rows = rows.astype(np.float64, copy=False)
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def worst_row(got: RawTensor, ref: RawTensor) -> tuple[tuple[int, ...], float] | None:
    """The row (all axes but the last) with the largest relative L2 difference, and that;
    None without rows. A row that the reference has as zeros counts as infinitely off."""
    if len(ref.shape) < 2 or not ref.count:
        return None
    row = ref.shape[-1]
    worst, place = -1.0, 0
    for at, stop in chunks(ref):
        chunk = Chunk(got.flat[at:stop], ref, at, stop, True)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            off, size = (_norms(x.reshape(-1, row)) for x in (chunk.off, chunk.size))
            ratio = np.where(off == 0, 0.0, off / size)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        if ratio.max() > worst:
            worst, place = float(ratio.max()), at // row + int(np.argmax(ratio))
    return tuple(int(i) for i in np.unravel_index(place, ref.shape[:-1])), worst
