"""Inputs that change by one element before each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        self.history: dict[int, list[tuple[int, int, Any]]] = {}
        """Of each set: the tensor, the element and the value, in the order of writing."""
        self.batch: list[tuple[int, int]] = []
        """Of each call of the last batch: its set, and how much of the history it has seen."""

    def changes(self, sets: Sequence[int]) -> list[tuple[int, int, str]]:
        """For a call on each of ``sets``: the tensor, the place in bytes, the new bytes in hex,
        empty where nothing may change."""
        made: list[tuple[int, int, str]] = []
        self.batch.clear()
        for k in sets:
            history = self.history.setdefault(k, [])
            if self.open:
                n = self.open[int(self.rng.integers(len(self.open)))]
                flat = self.data[n]
                to, source = (int(i) for i in self.rng.integers(flat.size, size=2))
                history.append((n, to, flat[source]))
                data = flat[source : source + 1].tobytes().hex()
                made.append((n, to * flat.itemsize, data))
            else:
                made.append((0, 0, ""))
            self.batch.append((k, len(history)))
        return made

    def at(self, call: int) -> dict[str, RawTensor]:
        """The inputs of a call of the last batch."""
        data = [flat.copy() for flat in self.data]
        k, seen = self.batch[call]
        for n, to, value in self.history[k][:seen]:
            data[n][to] = value
        return {
            name: RawTensor(dtype, shape, flat)
            for (name, (dtype, shape)), flat in zip(self.types.items(), data, strict=True)
        }
