"""Plans put in place: the program with a plan's text, loaded, so that every type and contract
of it is judged as if the author had written it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import Loaded, load_source
from tilefoundry.plan.moves import copies
from tilefoundry.plan.search import Plan
from tilefoundry.plan.source import Edit, Unwritable, applied
from tilefoundry.plan.write import Writer


@dataclass(frozen=True)
class Written:
    """A plan's edits and the program with them in place."""

    edits: tuple[Edit, ...]
    text: str


def written(writer: Writer, plan: Plan, loaded: Loaded, consts: Mapping[str, object]) -> Written:
    """The plan's text, which the program takes. Raises :class:`Unwritable` with the words of
    what it does not meet."""
    last = ""
    for copy in _fragment_copies(writer, plan):
        edits = writer.edits(plan, copy)
        text = applied(writer.author.file.text, edits)
        try:
            load_source(f"{loaded.file} with the plan", loaded.cls.__name__, consts, text)
        except Refusal as refusal:
            last = last or f"[{refusal.diags[0].code}] {refusal.diags[0].says}"
            continue
        return Written(edits, text)
    raise Unwritable(last)


def _fragment_copies(writer: Writer, plan: Plan) -> Sequence[str]:
    """Instructions that may fill fragments, special ones first; one word if there are none."""
    tiles = plan.compute.fragments
    if not tiles:
        return ("copy",)
    move = (plan.moves[0].ring.type.storage, tiles[0].type.storage)
    found = copies(writer.target, move)
    return [c.path for c in sorted(found, key=lambda c: (not c.moves, c.rank))]


def best(
    writer: Writer, plans: Sequence[Plan], loaded: Loaded, consts: Mapping[str, object], count: int
) -> Iterator[tuple[Plan, Written | Unwritable]]:
    """The first ``count`` plans with their text, or why there is none."""
    for plan in plans[:count]:
        try:
            yield plan, written(writer, plan, loaded, consts)
        except Unwritable as why:
            yield plan, why
