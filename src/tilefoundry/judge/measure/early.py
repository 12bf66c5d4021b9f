"""What a measurement knows before torch is there: most that cannot be measured is refused here.

Files of HIR are executed by processes that are forked without torch, and read as data by another;
what a twin implements is read off its text, as for a check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge.about import About
from tilefoundry.judge.asked import Understood
from tilefoundry.judge.foresee import foreseen, looks_like_twin
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.rival import Stated, unknown_names
from tilefoundry.judge.process import Child, Role
from tilefoundry.judge.request import judged_outputs, named_files
from tilefoundry.judge.screen import hold_predicates
from tilefoundry.judge.server import Imported
from tilefoundry.judge.session import Session
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.wire import Malformed

Predicates = Mapping[str, tuple[Predicate, ...]]


@dataclass(frozen=True)
class Plan:
    """What is measured: the HIR, what agreement means, files of inputs, extents."""

    known: Understood
    signature: Signature
    judged: Predicates
    files: Mapping[str, str] | None
    dims: Mapping[str, int]


class Early(Session):
    """The part of a measurement that needs no torch."""

    asked: Request

    def _start(self, role: Role, imported: Imported = "torch") -> Child:
        raise NotImplementedError

    def _plan(self, given: Mapping[str, RawTensor]) -> Plan | None:
        """What is asked, as far as the texts say; None for a twin whose text does not say what it
        implements. Rivals and references that cannot be opened are refused."""
        asked = self.asked
        sources: list[tuple[Role, str, str | None]] = [("candidate", asked.path, asked.selector)]
        others: dict[Role, Stated | None] = {"reference": asked.reference, "rival": asked.against}
        for role, stated in others.items():
            if stated is not None and not stated.library:
                sources.append((role, stated.path, stated.selector))
        for role, path, selector in sources:
            if not looks_like_twin(path):
                self._open_early(role, path, selector)
        about = self.hirs.get((asked.path, asked.selector))
        if about is None:
            about = self._guessed()
        return None if about is None else self._planned(about, given)

    def _open_early(self, role: Role, path: str, selector: str | None) -> About | None:
        """What a file of HIR says it is; None where it turns out to be a twin."""
        author = self._start(role, "")
        self._load(author, path, selector)
        about = self._about(author)
        author.end()
        if about.twin:
            return None
        self.hirs[path, selector] = about
        return about

    def _guessed(self) -> About | None:
        """The HIR that the text of a twin seems to implement: what is wrong with it is told where
        the twin has said what it implements."""
        guess = foreseen(self.asked.path, self.asked.selector)
        if guess is None:
            return None
        try:
            return self._open_early("reference", *guess)
        except (Refusal, Malformed):
            return None

    def _planned(self, hir: About, given: Mapping[str, RawTensor]) -> Plan:
        """What is asked of an HIR; refuses what cannot be measured."""
        asked = self.asked
        reader = self._start("reference", "")
        described = self._described(reader, hir)
        signature = Signature.read(described, hir.module)
        judged = self._judged(signature)
        files = None if asked.files is None else named_files(asked.files, signature)
        cases = list(self._cases(signature, files, given))
        if len(cases) != 1:
            refuse("measure-extents", None, count=len(cases))
        for stated in (asked.against, asked.reference):
            if stated is not None and stated.library:
                self._hold_rival(stated, reader, signature, cases[0])
        reader.end()
        return Plan(Understood(hir, described), signature, judged, files, cases[0])

    def _judged(self, signature: Signature) -> Predicates:
        if self.asked.outs:
            judged: Predicates = judged_outputs(self.asked.outs, signature)
        else:
            equal = (Predicate("equal", {}),)
            judged = {output.name: equal for output in signature.outputs}
        for output in signature.outputs:
            hold_predicates(output.name, judged[output.name], output.dtype)
        return judged

    def _hold_rival(
        self, stated: Stated, reader: Child, signature: Signature, dims: Mapping[str, int]
    ) -> None:
        """Refuse names that an expression cannot mean, and a product for what is none."""
        if stated.text:
            names = [*(d.name for d in signature.inputs), *signature.needed]
            if unknown := unknown_names(stated, names):
                known = ", ".join(n.replace(".", "_") for n in names)
                refuse("measure-rival-form", None, text=str(stated),
                       why=f"{unknown[0]} is no parameter of {signature.name} ({known})"
                       )  # fmt: skip
        elif stated.library == "cublas":
            asked: dict[str, Any] = {"library": "cublas", "expression": "", "dims": dims}
            answer = reader.ask("rival", "looking for a rival", **asked)
            if not answer.get("expressions"):
                refuse("measure-rival-unknown", None, library="cublas", function=signature.name)
