"""Inputs that are others in every element before each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilefoundry.ir.dtype import DType
from tilefoundry.judge.measure.window import BLOCK
from tilefoundry.judge.numbers import FORMS, Array
from tilefoundry.judge.tensor import RawTensor

KEPT_BITS = 2
"""Leading bits of a mantissa that no mask changes: values keep their size."""


class Fresh:
    """The same inputs with other contents before each call, which nobody knows before.

    What is drawn at random is a window of two draws, one after the other, at an offset of its
    own; the low bits of its mantissas change by a mask at another. So no result of a former call
    is nearly right, and none can be brought up to date for less than it takes to compute. Values
    from a file turn round from another element on. Tensors of indices change only where they
    were drawn, and nothing else does.
    """

    def __init__(
        self, draws: Sequence[Mapping[str, RawTensor]], seed: Sequence[int], drawn: bool
    ) -> None:
        self.rng = np.random.default_rng(list(seed))
        first, second = draws[0], draws[-1]
        self.types = {name: (t.dtype, t.shape) for name, t in first.items()}
        self.data = [t.flat for t in first.values()]
        floats = [n for n, t in enumerate(first.values()) if t.dtype.is_float and t.count > 1]
        others = [n for n, t in enumerate(first.values()) if t.count > 1] if drawn else []
        self.open = floats or others
        self.bases: dict[int, Array] = {}
        self.masks: dict[int, Array] = {}
        """Of each tensor that changes: its values as unsigned integers, twice as many as it has
        elements; bits that are flipped, of floats that were drawn."""
        tensors = list(zip(first.values(), second.values(), strict=True))
        for n in self.open:
            a, b = (t.flat.view(f"u{t.flat.itemsize}") for t in tensors[n])
            base, dtype = np.concatenate([a, b]), tensors[n][0].dtype
            free = _free_bits(dtype) if drawn else 0
            if free:
                base = self._usual(base, dtype)
                self.masks[n] = self.rng.integers(0, 1 << free, 2 * BLOCK, base.dtype)
            self.bases[n] = base
        self.batch: list[list[tuple[int, int, int]]] = []
        """Of each call of the last batch and each tensor that changes: its number, the offset
        of its window, that of its mask."""

    def _usual(self, bits: Array, dtype: DType) -> Array:
        """Without zeros, subnormals and what is not finite: others take their places."""
        form = FORMS[dtype.name]
        top = bits.dtype.type(((1 << form.exponent) - 1) << form.mantissa)
        odd = np.isin(bits & top, [0, top])
        if odd.any() and not odd.all():
            bits = bits.copy()
            bits[odd] = self.rng.choice(bits[~odd], np.count_nonzero(odd))
        return bits

    def changes(self, calls: int) -> list[list[tuple[int, int, int]]]:
        """Where the windows and masks of the next batch lie, for each of its calls."""
        self.batch = [
            [
                (
                    n,
                    int(self.rng.integers(self.data[n].size)),
                    int(self.rng.integers(BLOCK)) if n in self.masks else 0,
                )
                for n in self.open
            ]
            for _ in range(calls)
        ]
        return self.batch

    def at(self, call: int) -> dict[str, RawTensor]:
        """The inputs of a call of the last batch."""
        data: list[Any] = list(self.data)
        for n, at, mask in self.batch[call]:
            bits = self.bases[n][at : at + data[n].size].copy()
            if n in self.masks:
                bits ^= np.resize(self.masks[n][mask : mask + BLOCK], bits.size)
            data[n] = bits.view(data[n].dtype)
        return {
            name: RawTensor(dtype, shape, flat)
            for (name, (dtype, shape)), flat in zip(self.types.items(), data, strict=True)
        }


def _free_bits(dtype: DType) -> int:
    """Low bits of a float's mantissa that may be any."""
    return max(0, FORMS[dtype.name].mantissa - KEPT_BITS) if dtype.is_float else 0
