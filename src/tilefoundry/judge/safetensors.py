"""safetensors files and checkpoints: headers and where each tensor's bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.judge.parsed import parsed
from tilefoundry.judge.tensor import RawTensor, Shape, size

# https://github.com/huggingface/safetensors: the format's own names.
NAMES = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "fp8e4m3",
    "F8_E5M2": "fp8e5m2",
    "F8_E8M0": "f8e8m0",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U8": "u8",
    "BOOL": "bool",
}
LONGEST_HEADER = 100_000_000
"""Bytes of a header; the format's own limit."""
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its element type, shape and bytes."""

    path: str
    offset: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        return size(self.shape) * self.dtype.bits // 8

    def read(self) -> RawTensor:
        """The tensor, copied out of its file."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return RawTensor.from_bytes(self.dtype, self.shape, file.read(self.nbytes))


def entries(path: str, what: str) -> dict[str, Entry]:
    """The tensors of one file by name; refuses what is not a safetensors file."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > LONGEST_HEADER:
                _unreadable(path, what, "its header is too long for a safetensors file")
            header = parsed(file.read(length))
            end = file.seek(0, 2)
    except OSError as error:
        _unreadable(path, what, (error.strerror or str(error)).lower())
    except ValueError:
        _unreadable(path, what, "it has no header of a safetensors file")
    found: dict[str, Entry] = {}
    for name, record in header.items() if isinstance(header, dict) else ():
        if name != "__metadata__":
            found[name] = _entry(path, what, name, record, 8 + length, end)
    return found


def _entry(path: str, what: str, name: str, record: Any, base: int, end: int) -> Entry:
    try:
        shape = tuple(int(extent) for extent in record["shape"])
        first, last = (int(at) for at in record["data_offsets"])
        written = str(record["dtype"])
    except (KeyError, TypeError, ValueError):
        _unreadable(path, what, f"its header does not describe {name}")
    if written not in NAMES:
        _unreadable(path, what, f"{name} has elements of {written}")
    entry = Entry(path, base + first, DTYPES[NAMES[written]], shape)
    if not (0 <= first <= last and base + last <= end and last - first == entry.nbytes):
        _unreadable(path, what, f"the bytes of {name} are not all there")
    return entry


def checkpoint(folder: str) -> dict[str, Entry]:
    """All tensors of a checkpoint folder by name.

    Read from ``model.safetensors.index.json``, else ``model.safetensors``, else every
    ``*.safetensors`` of the folder.
    """
    what = "the checkpoint"
    place = Path(folder)
    if not place.is_dir():
        _unreadable(folder, what, "it is not a folder")
    if (place / INDEX).is_file():
        return _indexed(place, what)
    files = [place / WHOLE] if (place / WHOLE).is_file() else sorted(place.glob("*.safetensors"))
    if not files:
        _unreadable(folder, what, "it holds no .safetensors file")
    found: dict[str, Entry] = {}
    for file in files:
        found |= entries(str(file), what)
    return found


def _indexed(place: Path, what: str) -> dict[str, Entry]:
    index = place / INDEX
    try:
        where = parsed(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted({str(file) for file in where.values()})
    except OSError as error:
        _unreadable(str(index), what, (error.strerror or str(error)).lower())
    except (ValueError, KeyError, TypeError, AttributeError):
        _unreadable(str(index), what, "it has no weight_map from names to files")
    shards: Mapping[str, Mapping[str, Entry]] = {
        file: entries(str(place / file), what) for file in files
    }
    for name, file in where.items():
        if name not in shards[file]:
            _unreadable(str(index), what, f"{file} does not hold {name}")
    return {name: shards[file][name] for name, file in where.items()}


def _unreadable(path: str, what: str, why: str) -> NoReturn:
    refuse("check-file-unreadable", None, what=what, path=path, why=why)
