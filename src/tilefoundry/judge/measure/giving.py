"""Results of timed calls on their way to the command: what that takes, and their bytes.

A process may have left work for later: to a thread, to another process, to whoever looks at the
result. Nothing that looks can make it compute (``raw``), so what is missing is wrong; and what
goes on beside is seen in the time from the end of the batch until its results are here. That is
held to what giving as many results of the same form takes in a process without any author's
code, whose program is ours. The pages of the file that they are given in are there before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilefoundry.judge.channel import TYPES
from tilefoundry.judge.measure.clock import Reading
from tilefoundry.judge.process import Child
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.wire import Malformed

GIVEN_BYTES = 8 << 20
"""Results that are given at once, where one is not larger."""
Clock = Callable[[int], Reading]


class Given:
    """The file that a process gives its results in; ``capacity`` bytes of it are there."""

    def __init__(self, child: Child, pid: int, clock: Clock, path: Path, capacity: int) -> None:
        self.child, self.pid, self.clock, self.path = child, pid, clock, path
        path.write_bytes(bytes(capacity))

    def take(self, calls: Sequence[int], since: Reading) -> tuple[Reading, dict[str, Any]]:
        """Have the results of some calls of the last batch given; what passed since then."""
        answer = self.child.ask("results", "giving its results", out=str(self.path),
                                calls=list(calls))  # fmt: skip
        return self.clock(self.pid).since(since), answer

    def read(self, answer: Any, call: int) -> list[RawTensor]:
        """The results of the call that was given as number ``call``."""
        try:
            places = answer["places"]
            before = sum(_size(at) for outputs in places[:call] for at in outputs)
            with self.path.open("rb") as file:
                file.seek(before)
                most = os.fstat(file.fileno()).st_size
                return [tensor_of(x, file.read(min(_size(x), most)), most) for x in places[call]]
        except (KeyError, TypeError, ValueError, IndexError, Malformed) as broken:
            self.child.died(f"it told of its results in no known form ({broken})")


def _size(place: Any) -> int:
    size = place[3]
    if not isinstance(size, int) or size < 0:
        raise Malformed("results of no known size")
    return size


def tensor_of(place: Any, data: bytes, most: int) -> RawTensor:
    """The elements of a tensor, of whose memory ``data`` is the part from the first to the last;
    not more than ``most`` bytes, as elements may share memory."""
    name, shape, strides, span = place
    dtype = {d.name: d for d in TYPES}[name]
    item, whole = dtype.bits // 8, [*shape, *strides]
    if len(shape) != len(strides) or not all(isinstance(n, int) and n >= 0 for n in whole):
        raise Malformed("a result of no known form")
    reach = sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    if 0 in shape:
        return RawTensor.from_bytes(dtype, tuple(shape), b"")
    if prod(shape) * item > most:
        raise Malformed("results of no known size")
    if span != (reach + 1) * item or len(data) != span:
        raise Malformed("results that are cut off")
    steps = [*(s * item for s in strides), 1]
    flat = np.lib.stride_tricks.as_strided(np.frombuffer(data, np.uint8), [*shape, item], steps)
    return RawTensor.from_bytes(dtype, tuple(shape), np.ascontiguousarray(flat).data.cast("B"))
