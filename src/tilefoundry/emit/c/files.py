"""Register files whose tiles or rows instructions name by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilefoundry.lower.allocate import row_bytes, slot_bytes
from tilefoundry.targets.contract.place import Place, place
from tilefoundry.tir.program import Buffer, View

if TYPE_CHECKING:
    from tilefoundry.emit.c.kernel import Kernel


@dataclass(frozen=True)
class RegisterFile:
    """``storages`` whose buffers have no C variable. ``begin`` is written before the
    statements of a kernel that uses one of them, given the bytes up to its last buffer's end;
    ``end`` after them."""

    storages: tuple[str, ...]
    begin: Callable[[int], str]
    end: str


def opened(files: Sequence[RegisterFile], buffers: Sequence[Buffer]) -> list[tuple[str, str]]:
    """(what opens, what closes) each file that some of ``buffers`` lie in."""
    out: list[tuple[str, str]] = []
    for file in files:
        inside = [b for b in buffers if b.storage in file.storages]
        ends = [at + slot_bytes(b) for b in inside for at in b.offsets]
        if ends:
            out.append((file.begin(max(ends)), file.end))
    return out


def first(k: Kernel, view: View) -> int:
    """The byte of its register file where the view begins."""
    if not view.is_whole or view.buffer.slots != 1:
        k.form(None, f"{view}", "rows and tiles of registers are named by constants",
               "give each tile a buffer of its own")  # fmt: skip
    return view.buffer.offsets[0]


def byte(k: Kernel, view: View, row: int, column: int) -> int:
    """The byte of its register file where element (row, column) of the view lies."""
    lies = place(view.buffer.type)
    assert isinstance(lies, Place)
    at = lies.along(0, row) + lies.along(1, column)
    assert isinstance(at, int)
    return first(k, view) + at * lies.bits // 8


def row(k: Kernel, view: View) -> int:
    """Bytes of what instructions name of the view's register file: a row, a tile."""
    return row_bytes(k.func, view.storage)
