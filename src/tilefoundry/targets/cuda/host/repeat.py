"""Calls with tensors that were launched with before: one C function compares and launches.

The function is compiled once with the system's C compiler. Where there is none, or torch does
not carry DLPack's table of functions, every call goes the long way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tilefoundry.build.compiler import compiled
from tilefoundry.diag import Refusal
from tilefoundry.emit.source import Source

CODE = Path(__file__).parents[1] / "rt" / "tf_call.c"
MOST = 16
"""Tensors of a call."""
ELSEWHERE = -1
"""The answer for tensors that nothing is prepared for."""


class Shape(ctypes.Structure):
    """The extents of a tensor."""

    _fields_ = [("dims", ctypes.c_int64), ("shape", ctypes.POINTER(ctypes.c_int64))]


class Head(ctypes.Structure):
    """The fields of the C structure ``Call`` before its slots."""

    _fields_ = [("exchange", ctypes.c_void_p), ("launch", ctypes.c_void_p),
                ("types", ctypes.c_void_p * 2), ("tensors", ctypes.c_int64),
                ("launches", ctypes.c_int64), ("shapes", ctypes.POINTER(Shape))]  # fmt: skip


@cache
def library() -> Any | None:
    """The C functions; None where they cannot be had."""
    text = {CODE.name: CODE.read_text(encoding="utf-8")}
    try:
        made = compiled(Source("tf_call", "cpu", text, text, "tf_call", (), 0, ()))
        return ctypes.PyDLL(str(made.library))
    except (Refusal, OSError):
        return None


@cache
def exchange() -> int | None:
    """The address of torch's table of functions; None where it has none."""
    import torch

    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"dlpack_exchange_api")


class Repeat:
    """``call(*tensors)`` launches what is kept for them and answers the driver's status, or
    ELSEWHERE."""

    def __init__(
        self, lib: Any, table: int, launch: Any, shapes: Sequence[Sequence[int]], launches: int
    ) -> None:
        import torch

        extents = [(ctypes.c_int64 * len(s))(*s) for s in shapes]
        rows = (Shape * len(shapes))(*(Shape(len(e), e) for e in extents))
        data = ctypes.create_string_buffer(lib.tf_size())
        head = Head.from_buffer(data)
        head.exchange, head.shapes = table, rows
        head.launch = ctypes.cast(launch, ctypes.c_void_p)
        head.types[:] = id(torch.Tensor), id(torch.nn.Parameter)
        head.tensors, head.launches = len(shapes), launches
        self._kept = extents, rows, data, launch
        self._lib = lib
        at = ctypes.c_void_p(ctypes.addressof(data))
        objects = [ctypes.py_object] * len(shapes)
        self.call: Callable[..., int] = _bound(lib, "tf_call", [at], objects)
        self._keep = _bound(lib, "tf_keep", [at], [ctypes.c_void_p, *objects])
        self.forget: Callable[[], int] = _bound(lib, "tf_forget", [at], [])

    def keep(self, launches: Any, tensors: Sequence[Any]) -> None:
        """Keeps an array of launches for these tensors; the caller keeps the array."""
        self._keep(ctypes.addressof(launches), *tensors)


def _bound(lib: Any, name: str, first: list[Any], types: list[Any]) -> Callable[..., int]:
    """A C function of its own argument types, its first arguments given."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(first), *types)
    function = kind((name, lib))

    def call(*rest: Any) -> int:
        return function(*first, *rest)

    return call


def repeat(launch: Any, shapes: Sequence[Sequence[int]], launches: int) -> Repeat | None:
    """None where a call has too many tensors, or what it takes is not there."""
    if not 0 < len(shapes) <= MOST:
        return None
    table = exchange()
    lib = library() if table is not None else None
    return None if lib is None or table is None else Repeat(lib, table, launch, shapes, launches)
