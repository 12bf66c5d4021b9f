"""Screening: predicates that a trivial candidate meets are refused before the real one runs.

Trivial are: zeros, an input of the output's shape, the mean, the reference scaled, shifted by
its standard deviation, with its rows in another order, with one element wrong, the result of
other inputs, and of the same inputs in a coarser precision. A trivial candidate that equals the
reference in every element is right, not trivial, and says nothing about the predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DType
from tilefoundry.judge.numbers import Array, encode, finite, spacing
from tilefoundry.judge.predicates import Finding, chunks, compare, meets, rising
from tilefoundry.judge.stated import BLIND, Predicate
from tilefoundry.judge.tensor import RawTensor

SCALED = 0.01
"""Relative error of the scaled reference; two spacings of the type where that is coarser."""
Made = Callable[[int, int], Array]
"""Stored elements of a trivial candidate, from one place to another."""


@dataclass(frozen=True)
class Draw:
    """The reference of one output on one set of inputs; ``others``: further results that no
    right candidate returns here, by what they are."""

    reference: RawTensor
    inputs: Mapping[str, RawTensor]
    others: Mapping[str, RawTensor] = field(default_factory=dict)

    @cached_property
    def moments(self) -> tuple[float, float]:
        return _moments(self.reference)


def hold_predicates(output: str, predicates: Sequence[Predicate], dtype: DType) -> None:
    """Refuse what needs no values: blind predicates alone, tolerances on integers."""
    stated = {p.fn for p in predicates}
    words = " and ".join(sorted(stated))
    if stated <= BLIND:
        refuse("check-predicate-blind", None, output=output, stated=words)
    if not dtype.is_float and stated != {"equal"}:
        refuse("check-predicate-dtype", None, output=output, dtype=dtype, stated=words,
               needed="equal, and no other")  # fmt: skip
    if dtype.is_narrow and not stated & {"equal", "ulp"}:
        refuse("check-predicate-dtype", None, output=output, dtype=dtype, stated=words,
               needed="equal or ulp, alone or with others")  # fmt: skip


def judgeable(predicates: Sequence[Predicate], reference: RawTensor) -> bool:
    """Whether the predicates can judge the NaN and infinities of a reference."""
    if reference.is_finite or any(p.fn == "nan_inf" for p in predicates):
        return True
    return all(p.fn == "equal" for p in predicates) and not np.isnan(reference.values()).any()


def hold_reference(output: str, predicates: Sequence[Predicate], reference: RawTensor) -> None:
    """Refuse NaN in a reference unless ``nan_inf`` is stated, and infinities that the stated
    predicates cannot judge."""
    if judgeable(predicates, reference):
        return
    values = reference.values()
    nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    bad = np.flatnonzero(~np.isfinite(values))[0]
    index = [int(i) for i in np.unravel_index(bad, reference.shape)]
    refuse("check-reference-nan", None, output=output, nans=nans, infinities=infinities,
           count=reference.count, index=index)  # fmt: skip


def screen(output: str, predicates: Sequence[Predicate], draws: Sequence[Draw]) -> list[str]:
    """Refuse predicates that a trivial candidate meets on every draw; returns notes."""
    references = [draw.reference for draw in draws]
    if all(ref.count == 0 for ref in references):
        return ["empty: only element type and shape were compared"]
    _refuse_constant(output, references)
    notes: list[str] = []
    for name in _names(draws[0]):
        found = [meets(predicates, d.reference, _trivial(name, d)) for d in draws if _has(name, d)]
        if all(met is None for met in found):
            if name.startswith("input "):
                notes.append(f"equals {name}: a copy of it is right")
            continue
        if False in found:
            continue
        draw = next(d for d, met in zip(draws, found, strict=True) if met)
        made = _whole(_trivial(name, draw), draw.reference)
        findings = compare(predicates, made, draw.reference)
        bounds = [_excluding(f, draw.reference, made) for f in findings]
        refuse(
            "check-predicate-loose",
            None,
            output=output,
            stated=" and ".join(map(str, predicates)),
            trivial=_spell(name, draw.reference),
            bound="; or ".join(filter(None, bounds)) or "--fn equal",
        )
    return notes


def _refuse_constant(output: str, references: Sequence[RawTensor]) -> None:
    firsts = {ref.flat[:1].tobytes() for ref in references}
    constant = len(firsts) == 1 and all(
        np.all(ref.flat[at:stop] == ref.flat[0]) for ref in references for at, stop in rising(ref)
    )
    zero = not any(np.any(ref.values(*part)) for ref in references for part in rising(ref))
    if zero or (constant and max(ref.count for ref in references) > 1):
        value = references[0].values(0, 1)[0].item()
        refuse("check-reference-constant", None, output=output, value=value,
               count=references[0].count)  # fmt: skip


def _names(draw: Draw) -> Iterator[str]:
    ref = draw.reference
    yield "zeros"
    for name, tensor in draw.inputs.items():
        if tensor.shape == ref.shape:
            yield f"input {name}"
    if ref.dtype.is_float:
        yield from ("mean", "scaled", "shifted")
    yield "one element"
    if ref.count > 1:
        yield "rows"
    yield from draw.others


def _has(name: str, draw: Draw) -> bool:
    return name in draw.others or name in _names(draw)


def _spell(name: str, reference: RawTensor) -> str:
    if name.startswith("input "):
        return f"the {name}, returned as it is,"
    return {
        "zeros": "zeros",
        "mean": "the reference's mean everywhere",
        "scaled": f"the reference scaled by {_factor(reference):g}",
        "shifted": "the reference shifted by its standard deviation",
        "one element": "the reference with its largest element wrong",
        "rows": "the reference with its rows moved by one",
    }.get(name, name)


def _factor(reference: RawTensor) -> float:
    step = spacing(reference.dtype)
    return 1 + (SCALED if step < SCALED else 2 * step)


def _trivial(name: str, draw: Draw) -> Made:
    """The elements of a trivial candidate."""
    ref = draw.reference
    if name in draw.others:
        other = draw.others[name].flat
        return lambda at, stop: other[at:stop]
    if name.startswith("input "):
        given = draw.inputs[name.removeprefix("input ")]
        return lambda at, stop: encode(given.values(at, stop), ref.dtype)
    if name == "one element":
        return _one_wrong(ref)
    if name == "rows":
        step = ref.shape[-1] if len(ref.shape) > 1 and ref.shape[-1] < ref.count else 1
        return lambda at, stop: np.take(
            ref.flat, np.arange(at - step, stop - step), mode="wrap"
        )  # fmt: skip
    if name == "scaled":
        factor = _factor(ref)
        return lambda at, stop: encode(ref.values(at, stop) * factor, ref.dtype)
    if name == "zeros":
        return lambda at, stop: encode(np.zeros(stop - at), ref.dtype)
    mean, deviation = draw.moments
    if name == "mean":
        return lambda at, stop: encode(np.full(stop - at, mean), ref.dtype)
    return lambda at, stop: encode(ref.values(at, stop) + deviation, ref.dtype)


def _whole(made: Made, ref: RawTensor) -> RawTensor:
    return RawTensor(ref.dtype, ref.shape, np.concatenate([made(*c) for c in chunks(ref)]))


def _moments(ref: RawTensor) -> tuple[float, float]:
    """Mean and standard deviation of the finite elements."""
    count, total, squares = 0, 0.0, 0.0
    for at, stop in chunks(ref):
        values = ref.values(at, stop)
        values = values if ref.is_finite else values[np.isfinite(values)]
        mean = float(values.mean()) if values.size else 0.0
        squares += float(((values - mean) ** 2).sum())
        if count and values.size:  # the spread between the parts
            off = mean - total / count
            squares += off * off * count * values.size / (count + values.size)
        total, count = total + mean * values.size, count + values.size
    if not count:
        return 0.0, 0.0
    return total / count, float(np.sqrt(squares / count))


def _one_wrong(ref: RawTensor) -> Made:
    """The largest finite element with its sign turned; one bit of it where there is no sign."""
    best, at = -1.0, 0
    for start, stop in chunks(ref):
        sizes = np.abs(ref.values(start, stop).astype(np.float64))
        if ref.dtype.is_float and not ref.is_finite:
            sizes[~finite(ref.flat[start:stop], ref.dtype)] = -1
        place = int(np.argmax(sizes))
        if sizes[place] > best:
            best, at = float(sizes[place]), start + place
    wrong = ref.flat[at : at + 1].copy()
    if ref.dtype.is_float and ref.dtype.name != "f8e8m0" and best > 0:
        wrong = encode(-ref.values(at, at + 1), ref.dtype)
    else:
        wrong[0] ^= 1

    def made(start: int, stop: int) -> Array:
        if not start <= at < stop:
            return ref.flat[start:stop]
        flat = ref.flat[start:stop].copy()
        flat[at - start] = wrong[0]
        return flat

    return made


def _excluding(finding: Finding, ref: RawTensor, made: RawTensor) -> str:
    """The bound on this predicate that would exclude a trivial candidate; empty for none."""
    fn, bounds = finding.predicate.fn, finding.predicate.bounds
    if fn == "allclose":
        whole = (
            compare([Predicate("max_rel", {"max": 0})], made, ref)[0].value,
            _room(made, ref, bounds["rtol"]),
        )
        if whole[1] > 0:
            return f"allclose with --atol below {whole[1]:.3g}"
        return f"allclose with --rtol below {whole[0]:.3g} and a smaller --atol"
    if fn == "cosine":
        return f"cosine with --min above {finding.value:.6g}" if finding.value < 1 else ""
    return f"{fn} with --max below {finding.value:.3g}" if finding.value > 0 else ""


def _room(made: RawTensor, ref: RawTensor, rtol: float) -> float:
    """The largest difference beyond ``rtol``: what ``atol`` has to stay below."""
    got, want = made.values(), ref.values()
    finite = np.isfinite(got) & np.isfinite(want)
    over = np.abs(got[finite] - want[finite]) - rtol * np.abs(want[finite])
    return float(over.max()) if over.size else 0.0
