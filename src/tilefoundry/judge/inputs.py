"""What a candidate is called with: sets of inputs, and the turns in which it gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from tilefoundry.judge.draw import Values, draw, shuffled, stream
from tilefoundry.judge.extent import extent
from tilefoundry.judge.image import Arrangement
from tilefoundry.judge.numbers import alike, coarsened
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor

STRICT = ("ordinary", "given", "touched")
"""Sets on which bounds hold as stated; on the others an error is also compared with that which
the reference itself has against float64."""


@dataclass(frozen=True)
class Drawn:
    """A set of inputs: drawn, of one of the classes of ``draw``; ``given`` by files, or those
    ``shuffled``; or the first set with one element ``touched``."""

    values: str
    inputs: Mapping[str, RawTensor]

    @property
    def strict(self) -> bool:
        return self.values in STRICT


@dataclass(frozen=True)
class Turn:
    """One call: on which set, and where its inputs lie: at new addresses, or where those of
    the call before lay (``same``)."""

    draw: int
    arrangement: Arrangement = "plain"
    same: bool = False

    @property
    def spelled(self) -> str:
        return "same addresses" if self.same else self.arrangement


def classes(special: bool) -> tuple[Values, ...]:
    """The classes of values that are drawn; ``special``: NaN and infinities are judged."""
    return tuple(v for v in get_args(Values) if special or v != "special")


def random_inputs(
    seed: int, signature: Signature, dims: Mapping[str, int], number: int, values: Values
) -> Drawn:
    """The set ``number`` at random."""
    drawn: dict[str, RawTensor] = {}
    for declared in signature.inputs:
        rng = stream(seed, "input", declared.name, sorted(dims.items()), number)
        index = None if declared.index is None else (0, extent(declared.index, dims))
        drawn[declared.name] = draw(rng, declared.dtype, declared.shape(dims), index, values)
    return Drawn(values, drawn)


def shuffled_inputs(seed: int, given: Mapping[str, RawTensor]) -> Drawn | None:
    """Elements of given floats in an order that nobody foresees; None without any."""
    made = {name: shuffled(stream(seed, "shuffled", name), t) for name, t in given.items()}
    if all(alike(made[n].flat, t.flat) for n, t in given.items()):
        return None
    return Drawn("shuffled", made)


def coarse_inputs(given: Mapping[str, RawTensor]) -> dict[str, RawTensor] | None:
    """The inputs in fewer bits; None where no type has bits to spare."""
    made: dict[str, RawTensor] = {}
    changed = False
    for name, tensor in given.items():
        flat = coarsened(tensor.flat, tensor.dtype) if tensor.dtype.is_float else None
        changed = changed or (flat is not None and not alike(flat, tensor.flat))
        made[name] = tensor if flat is None else RawTensor(tensor.dtype, tensor.shape, flat)
    return made if changed else None


def touched_inputs(seed: int, first: Mapping[str, RawTensor]) -> Drawn | None:
    """The inputs with one element replaced by another one's value: any value that may stand in
    a tensor may stand there. None where no float tensor has two values."""
    rng = stream(seed, "touched")
    names = [n for n, t in first.items() if t.dtype.is_float and t.count > 1]
    for name in rng.permutation(names) if names else ():
        tensor = first[str(name)]
        to, source = (int(n) for n in rng.choice(tensor.count, 2, replace=False))
        if tensor.flat[to] != tensor.flat[source]:
            flat = tensor.flat.copy()
            flat[to] = flat[source]
            return Drawn("touched", {**first, name: RawTensor(tensor.dtype, tensor.shape, flat)})
    return None


def turns(rng: np.random.Generator, count: int, views: bool) -> list[Turn]:
    """The calls of one case on ``count`` sets, in an order that nobody foresees but for its
    beginning.

    The second set comes at the addresses of the first, and the first once more at others: an
    answer kept by address, shape or order is wrong then. With ``views`` inputs are not
    contiguous and not aligned, too.
    """
    if count == 1:
        made = [Turn(0), Turn(0)]
    else:
        rest = [Turn(0), *(Turn(n) for n in range(2, count))]
        made = [Turn(0), Turn(1, same=True), *(rest[n] for n in rng.permutation(len(rest)))]
    if views:
        spread: list[Arrangement] = ["offset", "padded", "strided", "transposed"]
        made += [Turn(n % count, arrangement) for n, arrangement in enumerate(spread)]
    return made


def accepted(planned: Iterable[Turn], holds: Callable[[int], bool]) -> Iterator[Turn]:
    """The calls on sets that ``holds`` says are judged. Where the call that was to come at the
    addresses of the one before is left out, the next on another set comes there."""
    before, same = -1, False
    for turn in planned:
        same = same or turn.same
        if not holds(turn.draw):
            continue
        plain = turn.arrangement == "plain" and turn.draw != before
        yield replace(turn, same=same and plain)
        same = same and not plain
        before = turn.draw


def neighbours(
    rng: np.random.Generator, signature: Signature, cases: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """Further sets of extents within the bounds of the open ones: one or two from a stated
    value, any below it, and the least."""
    known = {open.name: open for open in signature.opens}
    base = cases[int(rng.integers(len(cases)))]
    made: list[dict[str, int]] = []
    for kind in ("near", "below", "least"):
        found: dict[str, int] = {}
        for name, value in base.items():
            low, high = max(known[name].low, 1), known[name].high
            steps = {
                "near": [value + d for d in (-2, -1, 1, 2)],
                "below": range(low, value),
                "least": [low],
            }[kind]
            inside = [v for v in steps if low <= v <= high] or [value]
            found[name] = int(inside[int(rng.integers(len(inside)))])
        if found not in [*cases, *made]:
            made.append(found)
    return made
