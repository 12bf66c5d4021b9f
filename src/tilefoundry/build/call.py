"""A compiled program as a Python callable.

It takes torch tensors, numpy arrays, or anything else with DLPack, on the CPU, contiguous,
and returns outputs of the caller's kind. What is not as the program says is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.build import MODEL, Built, host
from tilefoundry.diag import refuse
from tilefoundry.emit.source import WORK_ALIGN, Argument
from tilefoundry.targets import load_target

NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32",
         "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool"}  # fmt: skip
NUMPY_BY_ML_DTYPES = {"bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}


class Compiled:
    """``compiled(*inputs)`` runs the program; ``weights`` by name are set before the first
    call that needs them. ``threads`` bounds how many run it (0: as many as OpenMP gives)."""

    def __init__(self, built: Built, threads: int = 0) -> None:
        self.built = built
        self.threads = threads
        self.weights: Mapping[str, Any] = {}
        arguments = built.source.arguments
        self._inputs = [a for a in arguments if a.role == "in"]
        self._outputs = [a for a in arguments if a.role == "out"]
        self._order = [a for a in arguments if a.role != "out"]
        self._entry = _loaded(built, len(arguments))
        self._spare: list[tuple[Any, int]] = []
        """Workspaces that no call uses now."""

    def __call__(self, *inputs: Any) -> Any:
        """The outputs: one tensor, or a tuple of several."""
        given = self._given(inputs)
        lend, make = _kind(given[0] if given else None)
        lent = [lend(x, a) for x, a in zip(given, self._order, strict=True)]
        outs = [make(a) for a in self._outputs]
        lent += [lend(x, a) for x, a in zip(outs, self._outputs, strict=True)]
        self._run([at for _, at in lent])
        return outs[0] if len(outs) == 1 else tuple(outs)

    def into(self, outputs: Sequence[Any], *inputs: Any) -> None:
        """The same, into tensors that are there, in memory that no other tensor of the call has."""
        given = self._given(inputs)
        if len(outputs) != len(self._outputs):
            names = " ".join(a.name for a in self._outputs)
            refuse("build-arguments", None, takes=names, given=len(outputs))
        every = (*self._order, *self._outputs)
        lend, _ = _kind(given[0] if given else outputs[0])
        lent = [lend(x, a) for x, a in zip((*given, *outputs), every, strict=True)]
        pointers = [at for _, at in lent]
        hold_apart(every, pointers)
        self._run(pointers)

    def _given(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Inputs and weights in the program's order."""
        if len(inputs) != len(self._inputs):
            names = " ".join(a.name for a in self._inputs)
            refuse("build-arguments", None, takes=names, given=len(inputs))
        if len(self._order) == len(self._inputs):
            return inputs
        left = iter(inputs)
        out: list[Any] = []
        for argument in self._order:
            if argument.role == "weight":
                if argument.name not in self.weights:
                    refuse("build-weight", None, name=argument.name)
                out.append(self.weights[argument.name])
            else:
                out.append(next(left))
        return out

    def _run(self, pointers: list[int]) -> None:
        work = self._workspace()
        try:
            answer = self._entry(*pointers, work[1], self.threads)
        finally:
            self._spare.append(work)
        if answer:
            cores = max(int(str(k["cores"])) for k in self.built.source.kernels)
            refuse("build-threads", None, cores=cores)

    def _workspace(self) -> tuple[Any, int]:
        try:
            return self._spare.pop()
        except IndexError:
            size = self.built.source.workspace
            if not size:
                return None, 0
            data = ctypes.create_string_buffer(size + WORK_ALIGN)
            at = ctypes.addressof(data)
            return data, -(-at // WORK_ALIGN) * WORK_ALIGN


def _loaded(built: Built, arguments: int) -> Any:
    """The library's entry; refuses a machine that cannot execute it."""
    target = load_target(built.target)
    lacks = host(target.family, "machine").missing(target.capabilities)
    if lacks and MODEL not in built.source.flags:
        refuse("build-machine", None, target=target.id, lacks=" ".join(lacks))
    library = ctypes.CDLL(str(Path(built.library)))
    entry = getattr(library, built.source.entry)
    entry.argtypes = [ctypes.c_void_p] * (arguments + 1) + [ctypes.c_int]
    entry.restype = ctypes.c_int
    return entry


def hold_apart(arguments: Sequence[Argument], pointers: Sequence[int]) -> None:
    """Refuses an output that shares memory with another tensor of its call."""
    for n, a in enumerate(arguments):
        if a.role != "out":
            continue
        at, end = pointers[n], pointers[n] + a.bytes
        for b, there in zip(arguments[:n], pointers, strict=False):
            if at < there + b.bytes and there < end:
                refuse("build-overlap", None, name=a.name, other=b.name, at=hex(at),
                       there=hex(there), bytes=a.bytes, others=b.bytes)  # fmt: skip


Lent = tuple[Any, int]
"""What holds a tensor's memory while it is read, and its address."""


def _kind(example: Any) -> tuple[Callable[[Any, Argument], Lent], Callable[[Argument], Any]]:
    """How the caller's tensors are read and made."""
    family = type(example).__module__.partition(".")[0]
    if family == "torch":
        return _torch_memory, _torch_empty
    return _array_memory, _array_empty


# torch


_TORCH: dict[str, Any] = {}


def _torch_dtype(argument: Argument) -> Any:
    found = _TORCH.get(argument.dtype.name)
    if found is None:
        import torch

        found = _TORCH[argument.dtype.name] = getattr(torch, str(argument.dtype.torch))
    return found


def _torch_memory(x: Any, a: Argument) -> Lent:
    if not hasattr(x, "data_ptr"):
        return _array_memory(x, a)
    try:
        if (
            x.dtype is _torch_dtype(a) and x.shape == a.shape and x.is_contiguous() and x.is_cpu
            and not x.is_neg() and not x.is_conj()
        ):  # fmt: skip
            at = x.data_ptr()
            if at % a.align == 0 and (at or not a.bytes):
                return x, at
    except (AttributeError, RuntimeError):  # what has no memory of its own
        pass
    _refused(a, _said(x, a))


def _said(x: Any, a: Argument) -> str:
    """A tensor in words, or what else was given."""
    try:
        negated = ", to be read negated" if x.is_neg() else ""
        memory = _address(x.data_ptr(), a) if x.data_ptr() else ", without memory"
        return (f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} with strides "
                f"{tuple(x.stride())} on {x.device}{negated}{memory}")  # fmt: skip
    except (AttributeError, RuntimeError):
        return f"a {type(x).__name__}"


def _torch_empty(a: Argument) -> Any:
    import torch

    made = torch.empty(a.shape, dtype=_torch_dtype(a))
    if made.data_ptr() % a.align == 0:
        return made
    bytes = torch.empty(a.bytes + a.align, dtype=torch.uint8)
    start = -bytes.data_ptr() % a.align
    return bytes[start : start + a.bytes].view(_torch_dtype(a)).view(a.shape)


# numpy, and what has DLPack


def _array_dtype(a: Argument) -> str:
    return NUMPY.get(a.dtype.name) or NUMPY_BY_ML_DTYPES.get(a.dtype.name, "")


def _array_memory(x: Any, a: Argument) -> Lent:
    if hasattr(x, "data_ptr"):
        return _torch_memory(x, a)
    array = x if _is_array(x) else _by_dlpack(x, a)
    if hasattr(array, "data_ptr"):
        return _torch_memory(array, a)
    if (
        array.dtype.name == _array_dtype(a) and array.dtype.isnative and array.shape == a.shape
        and array.flags.c_contiguous and array.flags.aligned
        and (a.role != "out" or array.flags.writeable) and array.ctypes.data % a.align == 0
    ):  # fmt: skip
        return array, array.ctypes.data
    order = "" if array.dtype.isnative else " of the other byte order"
    found = f"{array.dtype.name}{order} {array.shape} with strides of {array.strides} bytes"
    written = "" if array.flags.writeable or a.role != "out" else ", not to be written"
    _refused(a, found + written + _address(array.ctypes.data, a))


def _is_array(x: Any) -> bool:
    """An array of numpy's that is no more than its memory (a masked one is)."""
    if type(x).__module__.partition(".")[0] != "numpy" and not hasattr(x, "__array_interface__"):
        return False
    import numpy

    return isinstance(x, numpy.ndarray) and not isinstance(x, numpy.ma.MaskedArray)


def _by_dlpack(x: Any, a: Argument) -> Any:
    """A view of the caller's memory through DLPack."""
    if not hasattr(x, "__dlpack__") or type(x).__module__.partition(".")[0] == "numpy":
        _refused(a, f"a {type(x).__name__}")
    import numpy

    try:
        return numpy.from_dlpack(x)
    except (TypeError, RuntimeError, BufferError, AttributeError):
        pass  # an element type or a device that numpy has not
    try:
        import torch
    except ImportError:
        _refused(a, f"a {type(x).__name__} that numpy cannot read")
    try:
        return torch.from_dlpack(x)
    except (TypeError, RuntimeError, BufferError) as error:
        _refused(a, f"a {type(x).__name__} that cannot be read: {error}")


def _array_empty(a: Argument) -> Any:
    import numpy

    name: Any = NUMPY.get(a.dtype.name)
    if name is None:
        try:
            import ml_dtypes  # type: ignore[import-not-found]
        except ImportError:
            found = "numpy arrays, and an output of this type needs the package ml_dtypes"
            refuse("build-argument", None, name=a.name, wants=_wanted(a), found=found)
        name = getattr(ml_dtypes, NUMPY_BY_ML_DTYPES[a.dtype.name])
    if a.align == 1:
        return numpy.empty(a.shape, name)
    bytes = numpy.empty(a.bytes + a.align, numpy.uint8)
    start = -bytes.ctypes.data % a.align
    return bytes[start : start + a.bytes].view(name).reshape(a.shape)


def _wanted(a: Argument) -> str:
    at = f", at a multiple of {a.align} bytes" if a.align > 1 else ""
    return f"{a.dtype} {a.shape}, contiguous, on the CPU{at}"


def _address(pointer: int, a: Argument) -> str:
    return f", {pointer % a.align} bytes past one" if pointer % a.align else ""


def _refused(a: Argument, found: str) -> NoReturn:
    refuse("build-argument", None, name=a.name, wants=_wanted(a), found=found)
