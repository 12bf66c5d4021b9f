"""Screening: predicates that a trivial candidate meets are refused before the real one runs.

Trivial are: zeros, an input of the output's shape, the mean, the reference scaled, shifted by
its standard deviation, or wrong in one element. A trivial candidate that equals the reference
in every element is right, not trivial, and says nothing about the predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DType
from tilefoundry.judge.numbers import Array, spacing
from tilefoundry.judge.predicates import Finding, compare
from tilefoundry.judge.stated import BLIND, Predicate
from tilefoundry.judge.tensor import RawTensor

SCALED = 0.01
"""Relative error of the scaled reference; two spacings of the type where that is coarser."""


@dataclass(frozen=True)
class Draw:
    """The reference of one output on one set of inputs."""

    reference: RawTensor
    inputs: Mapping[str, RawTensor]


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


def hold_reference(output: str, predicates: Sequence[Predicate], reference: RawTensor) -> None:
    """Refuse NaN in a reference unless ``nan_inf`` is stated, and infinities that the stated
    predicates cannot judge."""
    if not reference.dtype.is_float or any(p.fn == "nan_inf" for p in predicates):
        return
    values = reference.values()
    nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    if nans or (infinities and any(p.fn != "equal" for p in predicates)):
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
        tried = [(ref, _trivial(name, draw)) for ref, draw in zip(references, draws, strict=True)]
        differing = [(ref, made) for ref, made in tried if not made.same(ref)]
        if not differing:
            if name.startswith("input "):
                notes.append(f"equals {name}: a copy of it is right")
            continue
        findings = [compare(predicates, made, ref) for ref, made in differing]
        if all(f.passed for found in findings for f in found):
            bounds = [_excluding(f, *differing[0]) for f in findings[0]]
            refuse(
                "check-predicate-loose",
                None,
                output=output,
                stated=" and ".join(map(str, predicates)),
                trivial=_spell(name, references[0]),
                bound="; or ".join(filter(None, bounds)) or "--fn equal",
            )
    return notes


def _refuse_constant(output: str, references: Sequence[RawTensor]) -> None:
    values = [ref.values() for ref in references]
    first = values[0][0]
    zero = all(np.all(v == 0) for v in values)
    constant = all(v.size > 1 and np.all(v == v[0]) for v in values) and all(
        v[0] == first for v in values
    )
    if zero or constant:
        refuse("check-reference-constant", None, output=output, value=first.item(),
               count=references[0].count)  # fmt: skip


def _names(draw: Draw) -> Iterator[str]:
    yield "zeros"
    ref = draw.reference
    for name, tensor in draw.inputs.items():
        if tensor.shape == ref.shape:
            yield f"input {name}"
    if ref.dtype.is_float:
        yield from ("mean", "scaled", "shifted")
    yield "one element"


def _spell(name: str, reference: RawTensor) -> str:
    if name.startswith("input "):
        return f"the {name}, returned as it is,"
    return {
        "zeros": "zeros",
        "mean": "the reference's mean everywhere",
        "scaled": f"the reference scaled by {_factor(reference):g}",
        "shifted": "the reference shifted by its standard deviation",
        "one element": "the reference with its largest element wrong",
    }[name]


def _factor(reference: RawTensor) -> float:
    step = spacing(reference.dtype)
    return 1 + (SCALED if step < SCALED else 2 * step)


def _trivial(name: str, draw: Draw) -> RawTensor:
    ref = draw.reference
    if name.startswith("input "):
        values = draw.inputs[name.removeprefix("input ")].values()
        return RawTensor.from_values(ref.dtype, ref.shape, values)
    if name == "one element":
        return _one_wrong(ref)
    values = ref.values()
    finite = values[np.isfinite(values)]
    made = {
        "zeros": lambda: np.zeros_like(values),
        "mean": lambda: np.full_like(values, _mean(finite)),
        "scaled": lambda: values * _factor(ref),
        "shifted": lambda: values + (finite.std() if finite.size else 0.0),
    }[name]()
    return RawTensor.from_values(ref.dtype, ref.shape, made)


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0


def _one_wrong(ref: RawTensor) -> RawTensor:
    """The largest finite element with its sign turned; one bit of it where there is no sign."""
    values = ref.values()
    at = int(np.argmax(np.where(np.isfinite(values), np.abs(values), -1)))
    flat = ref.flat.copy()
    if ref.dtype.is_float and ref.dtype.name != "f8e8m0" and values[at] != 0:
        flat[at : at + 1] = RawTensor.from_values(ref.dtype, (1,), -values[at : at + 1]).flat
    else:
        flat[at] ^= 1
    return RawTensor(ref.dtype, ref.shape, flat)


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
