"""The child's side of giving results: their bytes, read past all that a program can put between.

What reads is taken before any author's code is there: methods of torch's own type in C, which
cannot be replaced, and which neither modes nor subclasses see. So nothing computes here, and
what was not computed by now is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from tilefoundry.judge.call import torch_types

PROBE = b"tilefoundry: read"
"""What a process holds where it says, to try whether its memory can be read."""


class Reader:
    """Reads tensors of a device; ``clock`` copies from one that is no CPU."""

    def __init__(self, device: str, clock: Any = None) -> None:
        import torch

        core: Any = torch._C
        own: Any = core.TensorBase
        self.device = device
        self._type = torch.device(device).type
        self._clock = clock
        self._off = core.DisableTorchFunction
        self._gradients, self._set_gradients = core.is_grad_enabled, core._set_grad_enabled
        self._kinds = (torch.Tensor, torch.nn.Parameter)
        self._strided = torch.strided
        self._names = {dtype: name for name, dtype in torch_types().items()}
        self._copied_late = core._is_cow_tensor
        self._layout, self._dtype = own.layout.__get__, own.dtype.__get__
        self._where, self._shape = own.device.__get__, own.shape.__get__
        self._stride, self._item, self._count = own.stride, own.element_size, own.numel
        self._address = own.data_ptr
        self._flags = ((own.is_neg, "a view that negates when it is read"),
                       (own.is_conj, "a view that conjugates when it is read"),
                       (own._is_zerotensor, "zeros without memory"))  # fmt: skip

    @contextlib.contextmanager
    def no_grad(self) -> Iterator[None]:
        """``torch.no_grad``, whose end modes would see: they could compute then."""
        with self._off():
            before = self._gradients()
            self._set_gradients(False)
        try:
            yield
        finally:
            with self._off():
                self._set_gradients(before)

    def odd(self, value: Any) -> str:
        """What keeps a value from being a tensor that is there; empty where nothing does."""
        if type(value) not in self._kinds:
            return f"a {type(value).__name__}"
        with self._off():
            if self._layout(value) != self._strided or self._dtype(value) not in self._names:
                return f"a tensor of {self._dtype(value)}, {self._layout(value)}"
            if self._where(value).type != self._type:
                return f"a tensor on {self._where(value)}"
            for holds, says in self._flags:
                if holds(value):
                    return says
            return "a copy that is not made before it is written" * self._copied_late(value)

    def where(self, value: Any) -> list[Any]:
        """A tensor's element type, shape, strides in elements, how many bytes lie from its first
        element to its last, and where."""
        with self._off():
            shape, strides = list(self._shape(value)), list(self._stride(value))
            item, start = self._item(value), self._address(value)
            name = self._names[self._dtype(value)]
            count = self._count(value)
        reach = sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
        return [name, shape, strides, (reach + 1) * item if count else 0, start]

    def write(self, file: BinaryIO, value: Any) -> list[Any]:
        """Write the bytes from a tensor's first element to its last; answers as :meth:`where`,
        but for the place."""
        *form, start = self.where(value)
        span = form[-1]
        if span and self._clock is None:
            file.write((ctypes.c_ubyte * span).from_address(start))
        elif span:
            file.write(self._clock.copied(start, span))
        return form

    def odd_of(self, results: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """What is odd of an output of calls; empty where nothing is."""
        for outputs in results:
            for n, value in enumerate(outputs):
                if odd := self.odd(value):
                    return {"form": [n, odd]}
        return {}

    def where_all(self, results: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Where the outputs of calls lie, or what is odd of one."""
        odd = self.odd_of(results)
        return odd or {"places": [[self.where(value) for value in outputs] for outputs in results]}

    def write_all(self, file: BinaryIO, results: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Write the outputs of calls one after the other; answers where each lies, or what is
        odd of one."""
        if odd := self.odd_of(results):
            return odd
        return {"places": [[self.write(file, value) for value in outputs] for outputs in results]}
