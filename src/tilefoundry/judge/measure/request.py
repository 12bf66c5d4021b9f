"""What a measurement is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.judge.measure.rival import Stated
from tilefoundry.judge.request import FileInput, Judged
from tilefoundry.judge.request import Request as Check


@dataclass(frozen=True)
class Request:
    """One measurement. ``outs`` empty: every output must equal the reference's.

    ``threads`` of each process; ``processes`` of each side; ``runs`` rounds in each;
    ``target``: whose facts make the floor, empty for the program's own. ``seconds`` bound each
    process.
    """

    path: str
    selector: str | None
    outs: Sequence[Judged] = ()
    against: Stated | None = None
    files: Sequence[FileInput] | None = None
    weights: str | None = None
    device: str = "cpu"
    dims: Mapping[str, Sequence[int]] | None = None
    consts: Mapping[str, object] | None = None
    threads: int = 1
    processes: int = 3
    runs: int = 15
    seed: int | None = None
    seconds: float = 300
    target: str = ""
    evaluated: bool = False
    reference: Stated | None = None
    """What results are held to in place of the HIR, whose evaluation may take too long."""

    def check(self) -> Check:
        """The same program, inputs and weights as a check is asked them."""
        return Check(self.path, self.selector, self.outs, self.files, self.weights, (),
                     self.device, self.dims, self.consts, self.seed, self.seconds)  # fmt: skip
