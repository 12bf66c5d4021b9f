"""Running a function in a child: inputs as raw files, outputs parsed from one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from tilefoundry.diag import refuse
from tilefoundry.judge.channel import Malformed, read_outputs
from tilefoundry.judge.process import Child
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor, place, spell
from tilefoundry.judge.weights import Weights


class Runner:
    """A child with its weights, ready to be called."""

    def __init__(
        self, child: Child, signature: Signature, weights: Weights, device: str, folder: Path
    ) -> None:
        self.child = child
        self.signature = signature
        self.folder = folder / f"{child.role}.runs"
        self.folder.mkdir(mode=0o700)
        self.count = 0
        self.weights = weights
        answer = child.ask("prepare", "taking its weights", weights=weights.places, device=device)
        self.digests = answer.get("weights")

    def run(self, inputs: Mapping[str, RawTensor], poison: Sequence[int]) -> list[RawTensor]:
        """The outputs of one call on fresh copies of ``inputs``; refuses changed inputs."""
        self.count += 1
        with ExitStack() as open:
            files: dict[str, BinaryIO] = {}
            places: list[dict[str, Any]] = []
            for n, (name, tensor) in enumerate(inputs.items()):
                path = self.folder / f"{self.count}.{n}.input"
                files[name] = open.enter_context(path.open("x+b"))
                files[name].write(tensor.view)
                files[name].flush()
                places.append(place(str(path), 0, tensor.dtype.name, tensor.shape))
            path = self.folder / f"{self.count}.output"
            out = open.enter_context(path.open("x+b"))
            doing = f"running {self.signature.func}"
            answer = self.child.ask("run", doing, inputs=places, out=str(path), poison=list(poison))
            self.hold_form(answer, list(inputs))
            changed = [name for name, file in files.items() if not _holds(file, inputs[name])]
            if changed:
                names = ", ".join(f"input {name}" for name in changed)
                refuse("check-inputs-mutated", None, names=names)
            try:
                found = read_outputs(out)
            except Malformed as broken:
                self.child.died(f"it wrote {broken}")
            for used in self.folder.iterdir():
                used.unlink()
            return found

    def hold_outputs(self, found: Sequence[RawTensor], dims: Mapping[str, int]) -> None:
        """Refuse outputs of another number, element type or shape than the function's."""
        declared = self.signature.outputs
        if len(found) != len(declared):
            refuse("check-output-form", None, output="the result", found=f"{len(found)} tensors",
                   expected=f"{len(declared)} tensors")  # fmt: skip
        for want, got in zip(declared, found, strict=True):
            shape = want.shape(dims)
            if (got.dtype, got.shape) != (want.dtype, shape):
                refuse(
                    "check-output-form",
                    None,
                    output=want.name,
                    found=f"a tensor of {got.dtype} {spell(got.shape)}",
                    expected=f"a tensor of {want.dtype} {spell(shape)}",
                )

    def hold_weights(self) -> None:
        """Refuse a child whose weights are no longer what it was given."""
        if not self.weights.places:
            return
        answer = self.child.ask("digests", "hashing its weights")
        before, after = self.digests or {}, answer.get("weights") or {}
        changed = [name for name in self.weights.places if before.get(name) != after.get(name)]
        if changed:
            names = ", ".join(f"weight {name}" for name in changed)
            refuse("check-inputs-mutated", None, names=names)

    def hold_form(self, answer: Mapping[str, Any], inputs: Sequence[str]) -> None:
        """Refuse what the child itself found wrong with the outputs of its twin."""
        outputs = [declared.name for declared in self.signature.outputs]
        names = [*(f"input {n}" for n in inputs), *(f"weight {n}" for n in self.weights.places)]
        try:
            if "form" in answer:
                n, found = answer["form"]
                refuse("check-output-form", None, output=_named(outputs, n), found=str(found),
                       expected="a plain torch tensor")  # fmt: skip
            if "alias" in answer:
                n, at = answer["alias"]
                refuse("check-output-alias", None, output=_named(outputs, n), input=names[at])
        except (TypeError, ValueError, IndexError):
            self.child.died("it sent an answer of no known form")


def _named(outputs: Sequence[str], n: int) -> str:
    return outputs[n] if n < len(outputs) else f"output[{n}]"


def _holds(file: BinaryIO, tensor: RawTensor) -> bool:
    """Whether a file, read anew, still holds the bytes of a tensor."""
    file.seek(0)
    return file.read() == tensor.view
