"""Weights of a function: at random, or from a checkpoint, held against their declarations."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.draw import draw_weight, stream
from tilefoundry.judge.files import hold
from tilefoundry.judge.safetensors import checkpoint
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import place, size

PART = 1 << 24
"""Bytes hashed at a time."""


@dataclass(frozen=True)
class Weights:
    """Where a child finds each weight's bytes, by the weight's path in the module."""

    origin: str = ""
    places: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sha256: str = ""
    """Of the names and bytes of all weights, in the order of ``places``."""
    note: str = ""
    """What the reader must know about them; empty for nothing."""

    def hold(self) -> None:
        """Refuse files of weights that no longer hold what they held."""
        if self.places and _sha256(self.places) != self.sha256:
            refuse("check-inputs-mutated", None, who="someone", names="the files of the weights")

    def record(self) -> dict[str, object]:
        if not self.origin:
            return {}
        record: dict[str, object] = {"origin": self.origin, "count": len(self.places)}
        if self.places:
            record["sha256"] = self.sha256
        return record | ({"note": self.note} if self.note else {})


def gather_weights(
    stated: str | None, signature: Signature, seed: int | None, folder: Path
) -> Weights:
    """The weights of the module; ``stated`` is ``random``, a checkpoint's folder, or None."""
    if stated is None:
        if signature.needed:
            names = " ".join(signature.needed)
            refuse("check-weights-unstated", None, function=signature.name, names=names)
        return Weights()
    if stated == "random":
        assert seed is not None
        places = _random(signature, seed, folder)
    else:
        places = _from_checkpoint(stated, signature)
    note = "" if signature.needed else f"--weights has no effect: {signature.name} reads no weights"
    return Weights(stated, places, _sha256(places), note)


def _sha256(places: Mapping[str, Mapping[str, Any]]) -> str:
    digest = hashlib.sha256()
    for name, at in places.items():
        digest.update(name.encode())
        left = size(tuple(at["shape"])) * DTYPES[at["dtype"]].bits // 8
        with open(at["path"], "rb") as file:
            file.seek(at["offset"])
            while left and (part := file.read(min(left, PART))):
                digest.update(part)
                left -= len(part)
    return digest.hexdigest()


def _random(signature: Signature, seed: int, folder: Path) -> dict[str, dict[str, Any]]:
    places: dict[str, dict[str, Any]] = {}
    for n, declared in enumerate(signature.weights):
        tensor = draw_weight(
            stream(seed, "weight", declared.name), declared.dtype, declared.shape({})
        )
        path = folder / f"{n}.weight"
        path.write_bytes(tensor.view)
        places[declared.name] = place(str(path), 0, tensor.dtype.name, tensor.shape)
    return places


def _from_checkpoint(folder: str, signature: Signature) -> dict[str, dict[str, Any]]:
    known = checkpoint(folder)
    places: dict[str, dict[str, Any]] = {}
    for declared in signature.weights:
        name = signature.stored.get(declared.name, declared.name)
        if name not in known:
            near = " ".join(difflib.get_close_matches(name, known, 3)) or "nothing like it"
            refuse("check-weight-missing", None, name=name, path=folder, near=near)
        entry = known[name]
        what = f"weight {declared.name}"
        hold(what, entry.path, (entry.dtype, entry.shape), declared.dtype, declared.shape({}))
        places[declared.name] = place(entry.path, entry.offset, entry.dtype.name, entry.shape)
    return places
