"""The first case of what a candidate seems to be, under way while it loads and is called."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from tilefoundry.judge.asked import Asked
from tilefoundry.judge.case import Case
from tilefoundry.judge.inputs import Drawn
from tilefoundry.judge.tensor import RawTensor


class Ahead:
    """What one thread finds out, as it comes: what is asked, the sets of inputs, of each what is
    wanted on it (None: it is left out), and the case of them all. What keeps the thread from
    going on is raised wherever something is waited for that is not there."""

    def __init__(self) -> None:
        self.asked: Future[Asked] = Future()
        self.draws: Future[Sequence[Drawn]] = Future()
        self.case: Future[Case] = Future()
        self._wanted: dict[int, Future[Sequence[RawTensor] | None]] = {}
        self._why: BaseException | None = None
        self._lock = threading.Lock()

    def wanted(self, draw: int) -> Future[Sequence[RawTensor] | None]:
        """What is wanted on a set."""
        with self._lock:
            known = self._wanted.get(draw)
            if known is None:
                known = self._wanted[draw] = Future()
                if self._why is not None:
                    known.set_exception(self._why)
            return known

    def fail(self, why: BaseException) -> None:
        """Nothing more comes."""
        with self._lock:
            self._why = why
            futures: list[Future[Any]] = [self.asked, self.draws, self.case]
            for one in (*futures, *self._wanted.values()):
                if not one.done():
                    one.set_exception(why)
