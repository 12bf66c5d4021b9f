"""Register files whose tiles or rows instructions name by number: opened before, closed after."""

from __future__ import annotations

from collections.abc import Sequence

from tilefoundry.lower.allocate import slot_bytes
from tilefoundry.targets.cpu.instr.amx import TILE
from tilefoundry.tir.program import Buffer, View

APPLE = ("amx_x", "amx_y", "amx_z")


def is_file(storage: str) -> bool:
    """The storage is such a register file: its buffers have no C variable."""
    return storage == "tmem" or storage in APPLE


def opened(buffers: Sequence[Buffer]) -> list[tuple[str, str]]:
    """(what opens, what closes) each file that some of ``buffers`` lie in."""
    used = {b.storage for b in buffers}
    out: list[tuple[str, str]] = []
    if "tmem" in used:
        ends = [o + slot_bytes(b) for b in buffers if b.storage == "tmem" for o in b.offsets]
        out.append((f"TF_TILES_BEGIN({-(-max(ends) // TILE)});", "TF_TILES_END;"))
    if used & {*APPLE}:
        out.append(("TF_AMX_BEGIN;", "TF_AMX_END;"))
    return out


def start(view: View) -> int | None:
    """The byte of its file where a whole buffer begins; None for a part of one, or a ring."""
    return view.buffer.offsets[0] if view.is_whole and view.buffer.slots == 1 else None
