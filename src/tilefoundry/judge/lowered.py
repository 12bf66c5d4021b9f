"""A lowered program as something to call: interpreted under several orders of execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.interpret.run import run_program
from tilefoundry.lang.load import Selected
from tilefoundry.lower.finalize import finalize

ORDERS = (("round-robin", 0), ("lagging-engines", 0), ("random", 1))
"""Policies of the interpreter and their seeds: one fair, one in which engines act as late as
they may, one at random."""


class Interpreted:
    """The function of ``loaded``, lowered; ``weights`` by name are set before the first call."""

    def __init__(self, loaded: Selected) -> None:
        self.program, _ = finalize(loaded)
        self.weights: Mapping[str, Any] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs; refuses what an execution reports, and orders that disagree."""
        import torch

        named = [n for n in self.program.inputs if n not in self.program.weights]
        given = dict(zip(named, inputs, strict=True))
        first: list[Any] | None = None
        for policy, seed in ORDERS:
            found = run_program(self.program, given, self.weights, policy=policy, seed=seed)
            for report in found.reports[:1]:
                at = report.second or report.first
                refuse("lowered-report", at.span if at else None, kind=report.kind,
                       says=report.says, missing=report.missing or "an order between them",
                       policy=policy)  # fmt: skip
            if first is None:
                first = found.outputs
            for name, a, b in zip(self.program.results, first, found.outputs, strict=True):
                if not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
                    refuse("lowered-report", None, kind="race", policy=policy,
                           says=f"{name} differs from that of {ORDERS[0][0]}",
                           missing="an order that decides which value it has")  # fmt: skip
        return tuple(first or ())
