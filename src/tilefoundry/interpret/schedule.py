"""Who moves next: seeded, adversarial choices."""

from __future__ import annotations

from random import Random
from typing import Any

POLICIES = (
    "random",
    "round-robin",
    "greedy",
    "lagging-engines",
    "eager-engines",
    "reverse",
    "starve",
)


class Schedule:
    """Picks among warps that can move and engines that have work.

    ``random``: any of them; ``round-robin``: warps in turn; ``greedy``: one warp as far as
    it gets; ``lagging-engines``: engines only when no warp can move; ``eager-engines``:
    engines at once; ``reverse``: the last warp and the latest work first; ``starve``: one
    warp in seven, chosen by the seed, only when nothing else can move.
    """

    def __init__(self, policy: str, seed: int) -> None:
        assert policy in POLICIES, policy
        self.every: list[Any] = []
        """All warps by their number; each says whether it is ``ready``."""
        self.policy, self.seed = policy, seed
        self.random = Random(seed)
        self.eager = policy == "eager-engines"
        self.turn = 0
        self.last: Any = None

    def pick(self, warps: list[Any], works: list[Any]) -> Any:
        choose = getattr(self, "_" + self.policy.replace("-", "_"), self._random)
        return choose(warps, works)

    def _random(self, warps: list[Any], works: list[Any]) -> Any:
        n = int(self.random.random() * (len(warps) + len(works)))
        return warps[n] if n < len(warps) else works[n - len(warps)]

    def _round_robin(self, warps: list[Any], works: list[Any]) -> Any:
        self.turn += 1
        if works and (not warps or self.turn % 3 == 0):
            return works[0]
        first = 0 if self.last is None else self.last + 1
        turns = (self.every[n % len(self.every)] for n in range(first, first + len(self.every)))
        pick = next(w for w in turns if w.ready)
        self.last = pick.number
        return pick

    def _greedy(self, warps: list[Any], works: list[Any]) -> Any:
        if self.last not in warps:
            self.last = self._random(warps, works)
        return self.last

    def _lagging_engines(self, warps: list[Any], works: list[Any]) -> Any:
        return self._random(warps, []) if warps else self._random([], works)

    def _reverse(self, warps: list[Any], works: list[Any]) -> Any:
        if works and (not warps or self.random.random() < 0.2):
            return works[-1]
        return next(w for w in reversed(self.every) if w.ready)

    def _starve(self, warps: list[Any], works: list[Any]) -> Any:
        others = [w for w in warps if w.number % 7 != self.seed % 7]
        return self._random(others, works) if others or works else self._random(warps, [])
