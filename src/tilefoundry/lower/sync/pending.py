"""Accesses that later ones may still conflict with, and what orders them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from tilefoundry.lower.sync.access import Access
from tilefoundry.lower.sync.tree import WARP, Node, one_part


@dataclass(frozen=True)
class Pending:
    """An access that a later one may conflict with.

    ``open``: threads that have not waited for its end; ``since``: groups closed after its
    own, at least; ``fenced``: its threads fenced it for the asynchronous proxy; ``ordered``
    and ``ordered_async``: threads whose later accesses of each proxy come after it;
    ``warped``: so do those of its own warp; ``told``: other roles were told of it behind a
    proxy fence; ``crossed`` and ``surely``: loops around it that have begun another iteration
    since, on some way here and on all ways.
    """

    access: Access
    open: int = 0
    since: int = 0
    fenced: bool = False
    ordered: int = 0
    ordered_async: int = 0
    warped: bool = False
    told: bool = False
    crossed: frozenset[Node] = frozenset()
    surely: frozenset[Node] = frozenset()

    def join(self, other: Pending) -> Pending:
        return Pending(
            self.access,
            self.open | other.open,
            min(self.since, other.since),
            self.fenced and other.fenced,
            self.ordered & other.ordered,
            self.ordered_async & other.ordered_async,
            self.warped and other.warped,
            self.told and other.told,
            self.crossed | other.crossed,
            self.surely & other.surely,
        )


State: TypeAlias = dict[tuple[Access, int], Pending]
"""By access and age in iterations of its ring."""


def join(a: State, b: State) -> State:
    out = dict(a)
    for key, one in b.items():
        out[key] = out[key].join(one) if key in out else one
    return out


def retire(state: State, engine: str, mask: int, pending: int) -> bool:
    """The threads of ``mask`` have waited for all but the last ``pending`` groups of
    ``engine``; whether there was anything to wait for."""
    found = False
    for key, one in state.items():
        if one.access.engine == engine and one.open & mask and one.since >= pending:
            state[key] = replace(one, open=one.open & ~mask)
            found = True
    return found


def gather(state: State, mask: int) -> None:
    """The threads of each warp of ``mask`` have arrived."""
    if one_part(mask, WARP):
        meet(state, mask)
        return
    for key, one in state.items():
        if one.access.mask & ~mask == 0 and not one.open:
            state[key] = replace(one, warped=True)


def meet(state: State, mask: int) -> None:
    """All threads of ``mask`` have arrived."""
    for key, one in state.items():
        if one.open:
            continue
        ordered, after = one.ordered, one.ordered_async
        own = one.access.mask & ~mask == 0
        if own or ordered & mask:
            ordered |= mask
        ready = one.fenced or one.access.proxy == "async"
        if (own and ready) or after & mask:
            after |= mask
        if (ordered, after) != (one.ordered, one.ordered_async):
            state[key] = replace(one, ordered=ordered, ordered_async=after)
