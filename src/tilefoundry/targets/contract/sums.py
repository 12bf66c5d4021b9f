"""How a matrix instruction adds products to a sum, as data: part of its contract."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sums:
    """One step along k of the atom, for one sum of the unit that holds it: ``chains`` are
    places along k in the order in which their products are added, each by a multiply-add that
    rounds once.

    ``apart``: each chain begins at zero, they are added to each other in order, and the total
    to the sum; else the one chain goes on from the sum. Sums of integers wrap.
    """

    chains: tuple[tuple[int, ...], ...]
    apart: bool = False

    def text(self) -> str:
        """For a reader, one line."""
        ways = [", ".join(map(str, c)) if len(c) <= 4 else f"{c[0]}, {c[1]}, .. {c[-1]}"
                for c in self.chains]  # fmt: skip
        if self.apart:
            return f"multiply-adds from 0 along k = {' and k = '.join(ways)}, joined, then added"
        return f"multiply-adds along k = {ways[0]} of each step, steps in order"


FMA = Sums(((0,),))
"""One multiply-add for each step of k."""
