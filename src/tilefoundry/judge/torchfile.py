"""One tensor of a file that ``torch.save`` wrote, read without torch and without executing it.

A zip archive: ``data.pkl`` describes the tensor over a storage, whose bytes are the entry
``data/KEY``. Only the few names that a plain tensor's description has are known here.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.judge.numbers import Array, stored

LEAST_TORCH = "1.6"
"""The version since which torch writes archives."""
STORAGES = {"DoubleStorage": "f64", "FloatStorage": "f32", "HalfStorage": "f16",
            "BFloat16Storage": "bf16", "LongStorage": "i64", "IntStorage": "i32",
            "ShortStorage": "i16", "CharStorage": "i8", "ByteStorage": "u8",
            "BoolStorage": "bool", "UntypedStorage": ""}  # fmt: skip
"""Storages by torch's names, and the element type that each has of itself."""
STATE = frozenset({"BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"})
"""Operations of a pickle that make objects of classes and change what there is."""
BY_TORCH = {d.torch: d for d in DTYPES.values() if d.torch}


class Unreadable(Exception):
    """The file is not what it should be; says why."""


@dataclass(frozen=True)
class Storage:
    """The bytes of a storage, and the element type that it has of itself, if any."""

    data: bytes
    dtype: DType | None


@dataclass(frozen=True)
class Laid:
    """A tensor: its storage, element type, and where its elements lie in it."""

    storage: Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def flat(self) -> Array:
        """The elements, row-major; :class:`Unreadable` where the storage ends before them."""
        kept = np.frombuffer(self.storage.data, stored(self.dtype))
        reach = sum((e - 1) * s for e, s in zip(self.shape, self.strides, strict=True))
        if 0 in self.shape:
            return np.empty(0, stored(self.dtype))
        if self.offset < 0 or min((0, *self.strides)) < 0 or self.offset + reach >= kept.size:
            raise Unreadable("its elements lie beyond its storage")
        strides = [s * kept.itemsize for s in self.strides]
        view = np.lib.stride_tricks.as_strided(kept[self.offset :], self.shape, strides)
        return np.ascontiguousarray(view).reshape(-1)


def read(path: str) -> tuple[DType, tuple[int, ...], Array]:
    """Element type, shape and elements of the tensor in a file; :class:`Unreadable`."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1:
                raise Unreadable("it is no archive of torch.save")
            folder = names[0].removesuffix("data.pkl")
            order = f"{folder}byteorder"
            if order in archive.namelist() and archive.read(order) != b"little":
                raise Unreadable("its numbers are big-endian")
            found = _Reader(archive, folder).load()
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise Unreadable(f"it is no archive of torch.save since {LEAST_TORCH}: {error}") from None
    except (pickle.UnpicklingError, KeyError, IndexError, TypeError, ValueError, AttributeError,
            ImportError, NotImplementedError, RecursionError) as error:  # fmt: skip
        raise Unreadable(str(error)[:120] or type(error).__name__) from None
    if not isinstance(found, Laid):
        raise Unreadable(f"it holds a {type(found).__name__}, not a tensor")
    return found.dtype, found.shape, found.flat()


class _Reader(pickle.Unpickler):
    """Makes nothing but tensors, and the containers that a pickle makes by itself."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        text = archive.read(f"{folder}data.pkl")
        if STATE & {operation.name for operation, _, _ in pickletools.genops(text)}:
            raise pickle.UnpicklingError("it holds an object with a state, not a plain tensor")
        super().__init__(io.BytesIO(text))
        self.archive, self.folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if module == "torch" and name in BY_TORCH:
            return BY_TORCH[name]
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch._utils" and name in BUILDERS:
            return BUILDERS[name]
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which no plain tensor has")

    def persistent_load(self, pid: Any) -> Storage:
        kind, name, key, _, _ = pid
        if kind != "storage" or not isinstance(name, str):
            raise pickle.UnpicklingError("it holds something that is no storage")
        return Storage(self.archive.read(f"{self.folder}data/{key}"), DTYPES.get(name))


def _typed(storage: Storage, offset: int, shape: Any, strides: Any, *_: Any) -> Laid:
    if storage.dtype is None:
        raise pickle.UnpicklingError("it holds a tensor without an element type")
    return Laid(storage, storage.dtype, int(offset), tuple(shape), tuple(strides))


def _untyped(
    storage: Storage, offset: int, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: DType,
    *_: Any,
) -> Laid:  # fmt: skip
    return Laid(storage, dtype, int(offset), tuple(shape), tuple(strides))


BUILDERS = {
    "_rebuild_tensor_v2": _typed,
    "_rebuild_tensor_v3": _untyped,
    "_rebuild_parameter": lambda tensor, *_: tensor,
}
