"""Files of tensors: ``.pt``, ``.safetensors``, ``.npy``, held against what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.judge import torchfile
from tilefoundry.judge.numbers import stored
from tilefoundry.judge.safetensors import entries
from tilefoundry.judge.tensor import RawTensor, Shape, spell

BROKEN = (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError)
"""What numpy raises on a file that is not one of its own."""
NUMPY = {np.dtype(d.torch): d for d in DTYPES.values() if hasattr(np, d.torch or "-")}
NUMPY[np.dtype(np.bool_)] = DTYPES["bool"]


def read_tensor(path: str, what: str, name: str) -> RawTensor:
    """The tensor of a file; ``what`` names its part in messages, ``name`` picks one of several.

    Nothing of a file is executed.
    """
    if not Path(path).is_file():
        _unreadable(path, what, "it is no file" if Path(path).exists() else "there is no such file")
    suffix = Path(path).suffix
    if suffix in (".pt", ".pth"):
        return _from_torch(path, what)
    if suffix == ".npy":
        return _from_numpy(path, what)
    if suffix == ".safetensors":
        found = entries(path, what)
        if len(found) != 1 and name not in found:
            held = " ".join(sorted(found)) or "nothing"
            _unreadable(path, what, f"it holds {held}; one tensor or one called {name} is needed")
        return (found.get(name) or next(iter(found.values()))).read()
    _unreadable(path, what, "files of tensors end in .pt, .safetensors or .npy")


def _from_torch(path: str, what: str) -> RawTensor:
    try:
        return RawTensor(*torchfile.read(path))
    except torchfile.Unreadable as error:
        _unreadable(path, what, f"{error}; torch.save(tensor, path) writes what is read")


def _from_numpy(path: str, what: str) -> RawTensor:
    try:
        found = np.load(path, allow_pickle=False)
    except BROKEN:
        _unreadable(path, what, "it is not an .npy file of numbers")
    if not isinstance(found, np.ndarray) or found.dtype.newbyteorder("=") not in NUMPY:
        kind = getattr(found, "dtype", type(found).__name__)
        _unreadable(path, what, f"it holds {kind}")
    dtype = NUMPY[found.dtype.newbyteorder("=")]
    flat = np.ascontiguousarray(found).reshape(-1).astype(stored(dtype))
    return RawTensor(dtype, found.shape, flat)


def hold(
    what: str, path: str, found: tuple[DType, Shape], dtype: DType, shape: Shape | None
) -> None:
    """Refuse a file's tensor of another element type or shape than declared."""
    if found[0] != dtype:
        refuse("check-file-dtype", None, what=what, path=path, expected=dtype, found=found[0])
    if shape is not None and found[1] != shape:
        refuse(
            "check-file-shape", None, what=what, path=path, expected=spell(shape),
            found=spell(found[1]),
        )  # fmt: skip


def _unreadable(path: str, what: str, why: str) -> NoReturn:
    refuse("check-file-unreadable", None, what=what, path=path, why=why)
