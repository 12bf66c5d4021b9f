"""A lowered program as something to call: interpreted under several orders of execution."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.interpret.estimate import STEP, seconds
from tilefoundry.interpret.run import run_program
from tilefoundry.lang.load import Selected
from tilefoundry.lower.finalize import finalize

ORDERS = (("round-robin", 0), ("lagging-engines", 0), ("random", 1))
"""Policies of the interpreter and their seeds: one fair, one in which engines act as late as
they may, one at random."""


ROOM = 2
"""How far an estimate of the time may be off before nothing is begun that it says too long of."""


class Interpreted:
    """The function of ``loaded``, lowered; ``weights`` by name are set before the first call.

    Refuses a program that one call of would take far more than ``within`` seconds.
    """

    def __init__(self, loaded: Selected, within: float = inf) -> None:
        self.program, _ = finalize(loaded)
        self.weights: Mapping[str, Any] = {}
        each = seconds(self.program)
        if each * len(ORDERS) > ROOM * within:
            refuse("lowered-large", loaded.module.funcs[loaded.func].span, func=loaded.func,
                   minutes=round(each * len(ORDERS) / 60), seconds=f"{within:g}",
                   orders=len(ORDERS))  # fmt: skip
        # warps that wait are told from those that run, so that this bounds nothing but mistakes
        self.max_steps = 2_000_000 + int(10 * each / STEP)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs; refuses what an execution reports, and orders that disagree."""
        import torch

        named = [n for n in self.program.inputs if n not in self.program.weights]
        given = dict(zip(named, inputs, strict=True))
        first: list[Any] | None = None
        for policy, seed in ORDERS:
            found = run_program(self.program, given, self.weights, policy=policy, seed=seed,
                                max_steps=self.max_steps)  # fmt: skip
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
