"""What a measurement is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.judge.measure.rival import Stated, stated
from tilefoundry.judge.request import FileInput, Judged, read_named
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
    checked: str | None = None
    """The report of a check of just this candidate."""

    def record(self) -> dict[str, object]:
        """What was asked, such that :meth:`read` makes the same request."""
        known = self.check().record()
        shared = ("path", "selector", "outs", "files", "weights", "device", "dims", "consts",
                  "seconds")  # fmt: skip
        own = ("threads", "processes", "runs", "target", "evaluated", "checked")
        return {
            **{name: known[name] for name in shared},
            **{name: getattr(self, name) for name in own},
            "against": None if self.against is None else str(self.against),
            "reference": None if self.reference is None else str(self.reference),
        }

    @classmethod
    def read(cls, record: Mapping[str, Any], seed: int) -> Request:
        """The request of a record; KeyError, TypeError or ValueError where it is none."""
        given = read_named(record)
        rivals = {
            key: None if (text := given.pop(key)) is None else stated(str(text))
            for key in ("against", "reference")
        }
        return cls(seed=seed, **rivals, **given)

    def check(self) -> Check:
        """The same program, inputs and weights as a check is asked them."""
        return Check(self.path, self.selector, self.outs, self.files, self.weights, (),
                     self.device, self.dims, self.consts, self.seed, self.seconds)  # fmt: skip
