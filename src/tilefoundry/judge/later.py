"""Work of the parent's that goes on beside its waiting for processes: numpy and hashes, which
do not hold the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
WORKERS = 2


class Later:
    """Results by key: of what was begun, or computed when they are asked for."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS)
        self._known: dict[Hashable, Future[Any]] = {}

    def begin(self, key: Hashable, do: Callable[..., T], *args: Any) -> Future[T]:
        """Have something done, once for each key. It may wait for what was begun before."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._pool.submit(do, *args)
        return known

    def take(self, key: Hashable, do: Callable[..., T], *args: Any) -> T:
        """The result, which is not kept; what ``do`` refuses is refused here."""
        known = self._known.pop(key, None)
        return do(*args) if known is None else known.result()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
