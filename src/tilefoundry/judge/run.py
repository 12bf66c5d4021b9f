"""Running a function in a child: inputs as raw files, outputs parsed from one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import Any

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.judge.channel import read_outputs
from tilefoundry.judge.image import Arrangement, Image
from tilefoundry.judge.numbers import alike
from tilefoundry.judge.process import Child
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor, spell
from tilefoundry.judge.weights import Weights
from tilefoundry.judge.wire import Malformed

LATER = (
    "after the call returned and its inputs were overwritten",
    "return tensors of their own that are complete when the call returns",
)
CALLED_AGAIN = (
    "when the function was called again",
    "return new tensors, or declare @runtime_func(static=True)",
)
"""When results were others, and what to write instead."""


@dataclass(frozen=True)
class Manners:
    """How results may lie in memory, by what a twin says of its function.

    ``in_place``: which input's memory holds which output; ``static``: the next call writes the
    same outputs again; ``watched``: results are held to this at all (not the evaluator's).
    """

    in_place: Mapping[str, int] = field(default_factory=dict)
    static: bool = False
    watched: bool = False

    @classmethod
    def read(cls, record: Any) -> Manners:
        try:
            in_place = {str(name): int(n) for name, n in record["in_place"].items()}
            return cls(in_place, record["static"] is True, record["watched"] is True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Malformed(f"manners without their {error}") from None

    def record(self) -> dict[str, object]:
        return {"in_place": dict(self.in_place), "static": self.static}


class Runner:
    """A child with its weights, ready to be called."""

    def __init__(
        self,
        child: Child,
        signature: Signature,
        weights: Weights,
        device: str,
        folder: Path,
    ) -> None:
        self.child = child
        self.who = f"the {child.role}"
        self.signature = signature
        self.device = device
        self.folder = Path(tempfile.mkdtemp(prefix=f"{child.role}.runs.", dir=folder))
        self.count = 0
        self.weights = weights
        self.last: list[tuple[str, BufferedRandom, Image]] = []
        """Path, open file and contents of each input of the last call."""
        self.former: list[RawTensor] = []
        self.first: list[RawTensor] = []
        """Outputs of the last call, and of the first of the case."""
        self.where = ""
        """Said after what the child is doing: at which extents, where nobody named them."""
        answer = child.ask("prepare", "taking its weights", weights=weights.places, device=device)
        self.digests = answer.get("weights")
        self.manners = Manners.read(answer.get("manners"))
        if child.role == "reference":  # a twin that is one says nothing of its results
            self.manners = Manners()

    def close(self) -> None:
        for _, file, _ in self.last:
            file.close()
        self.last = []

    def run(
        self,
        inputs: Mapping[str, RawTensor],
        poison: Sequence[int],
        arrangement: Arrangement = "plain",
        same: bool = False,
    ) -> list[RawTensor]:
        """The outputs of one call on fresh copies of ``inputs``, which lie where those of the
        last call lay if ``same``.

        Refuses changed inputs, bytes written around them, and results that do not stay: when
        the inputs are overwritten after the call, and when the function is called again.
        """
        self.count += 1
        images = {name: Image.of(tensor, arrangement) for name, tensor in inputs.items()}
        held = self._again(images) if same else self._anew(images)
        doing = f"running {self.signature.func}{self.where}"
        places = [image.place(path) for path, _, image in held]
        found, answer = self._outputs("run", doing, inputs=places, poison=list(poison))
        self.hold_form(answer, list(inputs))
        assert found is not None
        self._hold_inputs(list(inputs), held, found)
        if self.manners.watched:
            self._hold_results(list(inputs), held, found)
        if held is not self.last:
            self.close()
        self.last, self.former = held, found
        self.first = self.first or found
        if not self.manners.watched:
            self.close()
        return found

    def exact(self, inputs: Mapping[str, RawTensor], most: int) -> tuple[list[RawTensor], str]:
        """The first ``most`` elements of the outputs in float64; where there are none, why."""
        self.count += 1
        images = {name: Image.of(tensor) for name, tensor in inputs.items()}
        held = self._anew(images)
        places = [image.place(path) for path, _, image in held]
        doing = f"evaluating {self.signature.func} in float64"
        found, answer = self._outputs("exact", doing, inputs=places, most=most)
        for _, file, _ in held:
            file.close()
        return ([], str(answer.get("why"))) if found is None else (found, "")

    def hold_outputs(self, found: Sequence[RawTensor], dims: Mapping[str, int]) -> None:
        """Refuse outputs of another number, element type or shape than the function's."""
        declared = self.signature.outputs
        if len(found) != len(declared):
            refuse("check-output-form", None, who=self.who, output="the result",
                   found=f"{len(found)} tensors", expected=f"{len(declared)} tensors")  # fmt: skip
        for want, got in zip(declared, found, strict=True):
            shape = want.shape(dims)
            if (got.dtype, got.shape) != (want.dtype, shape):
                refuse(
                    "check-output-form",
                    None,
                    who=self.who,
                    output=want.name,
                    found=f"a tensor of {got.dtype} {spell(got.shape)}",
                    expected=f"a tensor of {want.dtype} {spell(shape)}",
                )

    def hold_weights(self) -> None:
        """Refuse a child whose weights are no longer what it was given, and files of weights
        that are not what they were."""
        if not self.weights.places:
            return
        answer = self.child.ask("digests", "hashing its weights")
        before, after = self.digests or {}, answer.get("weights") or {}
        changed = [name for name in self.weights.places if before.get(name) != after.get(name)]
        if changed:
            names = ", ".join(f"weight {name}" for name in changed)
            refuse("check-inputs-mutated", None, who=self.who, names=names)
        self.weights.hold()

    def hold_form(self, answer: Mapping[str, Any], inputs: Sequence[str]) -> None:
        """Refuse what the child itself found wrong with the outputs of its twin."""
        outputs = [declared.name for declared in self.signature.outputs]
        names = [*(f"input {n}" for n in inputs), *(f"weight {n}" for n in self.weights.places),
                 *outputs]  # fmt: skip
        try:
            if "form" in answer:
                n, found = answer["form"]
                refuse("check-output-form", None, who=self.who, output=_named(outputs, n),
                       found=str(found), expected="a plain torch tensor")  # fmt: skip
            if "alias" in answer:
                n, at = answer["alias"]
                refuse(
                    "check-output-alias",
                    None,
                    who=self.who,
                    output=_named(outputs, n),
                    input=names[at],
                )
            if "library" in answer:
                refuse("check-library-called", None, what=str(answer["library"]))
        except (TypeError, ValueError, IndexError):
            self.child.died("it sent an answer of no known form")

    # ---- files

    def _anew(self, images: Mapping[str, Image]) -> list[tuple[str, BufferedRandom, Image]]:
        """Files of their own for inputs: a child maps them at addresses of their own."""
        held: list[tuple[str, BufferedRandom, Image]] = []
        for n, image in enumerate(images.values()):
            path = self.folder / f"{self.count}.{n}.input"
            file = path.open("x+b")
            file.write(image.data.data)
            file.flush()
            held.append((str(path), file, image))
        return held

    def _again(self, images: Mapping[str, Image]) -> list[tuple[str, BufferedRandom, Image]]:
        """The files of the last call with new contents, which a child's mapping shows."""
        for n, ((path, file, old), image) in enumerate(
            zip(self.last, images.values(), strict=True)
        ):
            assert (old.offset, old.strides) == (image.offset, image.strides), path
            _overwrite(file, image.data)
            self.last[n] = (path, file, image)
        return self.last

    def _outputs(
        self, what: str, doing: str, **request: Any
    ) -> tuple[list[RawTensor] | None, dict[str, Any]]:
        """Ask for outputs; none where the answer says something else."""
        path = self.folder / f"{self.count}.output"
        with ExitStack() as open:
            out = open.enter_context(path.open("x+b"))
            answer = self.child.ask(what, doing, out=str(path), **request)
            for used in self.folder.iterdir():
                used.unlink()
            if answer:
                return None, answer
            try:
                return read_outputs(out), {}
            except Malformed as broken:
                self.child.died(f"it wrote {broken}")

    # ---- what must stay

    def _hold_inputs(
        self,
        names: Sequence[str],
        held: Sequence[tuple[str, BufferedRandom, Image]],
        found: Sequence[RawTensor],
    ) -> None:
        """Refuse changed inputs and writes around them; an input that holds an output by
        declaration holds it now."""
        changed: dict[str, str] = {}
        for name, (_, file, image) in zip(names, held, strict=True):
            number = self.manners.in_place.get(name)
            output = found[number] if number is not None and number < len(found) else None
            fits = output is not None and (output.dtype, output.shape) == (
                image.tensor.dtype, image.tensor.shape,
            )  # fmt: skip
            what = image.changed(_contents(file), output if fits else None)
            if what:
                changed[name] = what
        around = [name for name, what in changed.items() if what == "guard"]
        if around:
            refuse(
                "check-outside-written",
                None,
                who=self.who,
                names=", ".join(f"input {n}" for n in around),
            )
        if changed:
            refuse(
                "check-inputs-mutated",
                None,
                who=self.who,
                names=", ".join(f"input {n}" for n in changed),
            )

    def _hold_results(
        self,
        names: Sequence[str],
        held: Sequence[tuple[str, BufferedRandom, Image]],
        found: Sequence[RawTensor],
    ) -> None:
        """Refuse results that are others a moment later, and results of the last call that
        this one changed."""
        kept = [n for n, name in enumerate(names) if name in self.manners.in_place]
        for n, (_, file, image) in enumerate(held):
            if n not in kept:
                _overwrite(file, image.spoiled())
        doing = "copying its outputs once more"
        later, _ = self._outputs("again", doing, which="last", kept=kept)
        self._hold_same(found, later, *LATER)
        if self.former:
            later, _ = self._outputs("again", doing, which="former", kept=kept)
            self._hold_kept(self.former, later)

    def end(self) -> None:
        """End a case: refuse a first result that a later call changed."""
        if self.first and self.manners.watched:
            later, _ = self._outputs("again", "copying its first outputs", which="first", kept=[])
            self._hold_kept(self.first, later)
        self.first, self.former = [], []

    def _hold_kept(self, before: Sequence[RawTensor], after: Sequence[RawTensor] | None) -> None:
        if not self.manners.static and not self.manners.in_place:
            self._hold_same(before, after, *CALLED_AGAIN)

    def _hold_same(
        self, before: Sequence[RawTensor], after: Sequence[RawTensor] | None, when: str, fix: str
    ) -> None:
        outputs = [declared.name for declared in self.signature.outputs]
        if after is None or len(after) != len(before):
            self.child.died("it sent other outputs when it was asked once more")
        for n, (a, b) in enumerate(zip(before, after, strict=True)):
            if not alike(a.flat, b.flat):
                refuse("check-output-unsettled", None, who=self.who, output=_named(outputs, n),
                       when=when, fix=fix)  # fmt: skip


def _named(outputs: Sequence[str], n: int) -> str:
    return outputs[n] if n < len(outputs) else f"output[{n}]"


def _overwrite(file: BufferedRandom, data: np.ndarray[Any, Any]) -> None:
    """Write over a file in place: whoever maps it sees the new bytes."""
    file.seek(0)
    file.write(data.data)
    file.flush()


def _contents(file: BufferedRandom) -> np.ndarray[Any, Any]:
    """The bytes of a file, read anew: a child that shortens one that is mapped ends its reader."""
    found = np.empty(os.fstat(file.fileno()).st_size, np.uint8)  # numpy asks for large pages
    file.seek(0)
    return found[: file.readinto(found.data)]
