"""Inputs that change by one element before each call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tilefoundry.judge.tensor import RawTensor


class Fresh:
    """Sets of the same inputs, of which each changes by one element before it is used.

    The value of another element of the same tensor takes its place: any value that may stand
    in a tensor may stand there. Tensors of indices change only where they were drawn.
    """

    def __init__(self, inputs: Mapping[str, RawTensor], seed: Sequence[int], drawn: bool) -> None:
        self.rng = np.random.default_rng(list(seed))
        self.types = {name: (t.dtype, t.shape) for name, t in inputs.items()}
        self.data = [np.array(t.flat) for t in inputs.values()]
        floats = [n for n, t in enumerate(inputs.values()) if t.dtype.is_float and t.count > 1]
        others = [n for n, t in enumerate(inputs.values()) if t.count > 1] if drawn else []
        self.open = floats or others
        self.own: Collection[int] = range(len(self.data))
        self.restored: Collection[int] = ()
        """Tensors that each set has of its own; those that have their first values again
        before each batch."""
        self.history: dict[tuple[int, int], list[tuple[int, Any]]] = {}
        """Of each set and tensor: the element and the value, in the order of writing."""
        self.batch: list[list[tuple[tuple[int, int], int]]] = []
        """Of each call of the last batch and each tensor: its history, and how much of it the
        call has seen."""

    def _key(self, k: int, n: int) -> tuple[int, int]:
        return (k if n in self.own else 0, n)

    def changes(self, sets: Sequence[int]) -> list[tuple[int, int, str]]:
        """For a call on each of ``sets``: the tensor, the place in bytes, the new bytes in hex,
        empty where nothing may change."""
        made: list[tuple[int, int, str]] = []
        self.batch.clear()
        for k in sets:
            for n in self.restored:
                self.history.pop(self._key(k, n), None)
        for k in sets:
            if self.open:
                n = self.open[int(self.rng.integers(len(self.open)))]
                flat = self.data[n]
                to, source = (int(i) for i in self.rng.integers(flat.size, size=2))
                self.history.setdefault(self._key(k, n), []).append((to, flat[source]))
                data = flat[source : source + 1].tobytes().hex()
                made.append((n, to * flat.itemsize, data))
            else:
                made.append((0, 0, ""))
            keys = [self._key(k, n) for n in range(len(self.data))]
            self.batch.append([(key, len(self.history.get(key, ()))) for key in keys])
        return made

    def at(self, call: int) -> dict[str, RawTensor]:
        """The inputs of a call of the last batch."""
        data = [flat.copy() for flat in self.data]
        for flat, (key, seen) in zip(data, self.batch[call], strict=True):
            for to, value in self.history.get(key, [])[:seen]:
                flat[to] = value
        return {
            name: RawTensor(dtype, shape, flat)
            for (name, (dtype, shape)), flat in zip(self.types.items(), data, strict=True)
        }
