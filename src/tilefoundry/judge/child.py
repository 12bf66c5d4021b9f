"""The process that executes an author's program: ``python -m tilefoundry.judge.child FD``.

It takes requests over the socket FD, answers each, and ends when the socket closes. It holds
no answer, bound or seed. What it says is not believed: outputs are read as bytes and typed by
the parent.
"""

from __future__ import annotations

import hashlib
import mmap
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tilefoundry
from tilefoundry.diag import Diag, Refusal, refuse
from tilefoundry.judge.channel import TYPES, receive, send, write_outputs
from tilefoundry.judge.measure.stage import Stage

OURS = str(Path(tilefoundry.__file__).parent)
POISON_BLOCKS = 2
"""Freed blocks of each output's size that hold NaN patterns before a run."""


def main() -> None:
    """Serve requests until the parent closes its end."""
    _end_with_parent()
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    sys.excepthook = _last_words
    program = Program()
    while (request := receive(end)) is not None:
        try:
            answer = getattr(program, request.pop("do"))(**request)
        except Refusal as refusal:
            answer = {"refusal": [_record(diag) for diag in refusal.diags]}
        send(end, answer)


def _end_with_parent() -> None:
    """A killed parent leaves nothing behind, not even a stopped child (Linux, prctl(2))."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _record(diag: Diag) -> dict[str, Any]:
    span = diag.span
    place = [span.file, span.line, span.col, span.end_line, span.end_col] if span else None
    fields = {name: str(value) for name, value in diag.fields.items()}
    return {"code": diag.code, "span": place, "fields": fields, "notes": list(diag.notes)}


def _last_words(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print an author's failure without our own frames around it."""
    frames = traceback.extract_tb(trace)
    theirs = [f for f in frames if not f.filename.startswith((OURS, "<frozen"))]
    for line in traceback.format_list(theirs or frames):
        sys.stderr.write(line)
    for line in traceback.format_exception_only(kind, error):
        sys.stderr.write(line)


class Program(Stage):
    """The loaded program and its tensors."""

    loaded: Any
    device: str
    subject: Any = None
    weights: dict[str, Any]

    def limit(self, memory: int) -> dict[str, Any]:
        """Bound this process: no core files, no more than ``memory`` bytes of data (0: any)."""
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        return {}

    def warm(self) -> dict[str, Any]:
        """Import what evaluation needs, while the parent waits for another."""
        import torch

        return {"torch": torch.__version__}

    def load(
        self, file: str, selector: str | None, consts: Mapping[str, Any], form: str = ""
    ) -> dict[str, Any]:
        """Execute the author's file; answers where the module stands that it is about.

        ``form``: what is called is the program's lowering, interpreted (``tir``), or its
        kernel, compiled (``kernel``); ``timed``: a twin as it is, of an HIR the kernel;
        empty for what the file itself says.
        """
        from tilefoundry.judge.signature import source_of
        from tilefoundry.lang.load import load_source

        self.loaded = load_source(file, selector, consts)
        if not self.loaded.func:
            module = self.loaded.module
            refuse("function-unstated", module.span, module=module.name, func="none",
                   known=" ".join(module.funcs) or "none")  # fmt: skip
        cls, twin = self.loaded.cls, self.loaded.is_twin
        if form == "timed":
            form = "" if twin else "kernel"
        if form:
            if twin:
                option = "lowered" if form == "tir" else "built"
                refuse("check-lowered-twin", None, name=cls.__qualname__, option=option)
            self.subject, twin = self._made(form), True
        module = getattr(cls, "__tilefoundry_implements__", cls)
        return {
            "twin": twin,
            "name": cls.__qualname__,
            "file": source_of(module),
            "module": module.__qualname__,
            "func": self.loaded.func,
            "kernel": form == "kernel",
        }

    def _made(self, form: str) -> Any:
        if form == "tir":
            from tilefoundry.judge.lowered import Interpreted

            return Interpreted(self.loaded)
        from tilefoundry.build import build, callable_of

        return callable_of(build(self.loaded))

    def describe(self) -> dict[str, Any]:
        """The signature of the loaded function."""
        from tilefoundry.evaluate import weight_types
        from tilefoundry.judge.signature import describe

        module, cls = self.loaded.module, self.loaded.cls
        implemented = getattr(cls, "__tilefoundry_implements__", cls)
        return describe(module, self.loaded.func, implemented, weight_types(module))

    def prepare(self, weights: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, Any]:
        """Take the weights and make what will be called."""
        self.device = device
        self.weights = {name: self._tensor(place, False) for name, place in weights.items()}
        if self.loaded.is_twin:
            self.subject = self.loaded.cls(dict(self.weights))
        elif self.subject is not None:
            self.subject.weights = self.weights
        return {"weights": {name: _digest(value) for name, value in self.weights.items()}}

    def run(
        self, inputs: Sequence[Mapping[str, Any]], out: str, poison: Sequence[int]
    ) -> dict[str, Any]:
        """Call the function once and write its outputs to ``out``.

        ``poison`` are the outputs' sizes in bytes: freed memory of these sizes is filled first,
        so that memory which nobody wrote does not hold a former result.
        """
        import torch

        tensors = [self._tensor(place, True) for place in inputs]
        self._poison(poison)
        with torch.no_grad():
            if self.subject is None:
                from tilefoundry.evaluate import evaluate

                module, func = self.loaded.module, self.loaded.func
                found = evaluate(module, func, tensors, self.weights, self.device)
            else:
                called = self.subject
                if self.loaded.is_twin:
                    called = getattr(self.subject, self.loaded.func)
                found = called(*tensors)
            if self.device != "cpu":
                torch.cuda.synchronize()
        outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        answer = self._held(outputs, tensors) if self.subject is not None else {}
        if not answer:
            self._write(out, outputs)
            if self.device != "cpu":
                self._return_inputs(inputs, tensors)
        return answer

    def digests(self) -> dict[str, Any]:
        """Digests of the weights as they are now."""
        return {"weights": {name: _digest(value) for name, value in self.weights.items()}}

    def _tensor(self, place: Mapping[str, Any], shared: bool) -> Any:
        """A tensor over the bytes of a file: seen by the parent if ``shared``, else private."""
        import torch

        dtype = _torch_types()[place["dtype"]]
        shape, offset = place["shape"], place["offset"]
        count = 1
        for extent in shape:
            count *= extent
        if not count:
            return torch.empty(shape, dtype=dtype, device=self.device)
        with open(place["path"], "r+b" if shared else "rb") as file:
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            data = mmap.mmap(file.fileno(), 0, access=access)
        size = count * dtype.itemsize
        flat = torch.frombuffer(data, dtype=torch.uint8, count=size, offset=offset)
        if offset % dtype.itemsize:
            flat = flat.clone()
        tensor = flat.view(dtype).reshape(shape)
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def _poison(self, sizes: Sequence[int]) -> None:
        import torch

        blocks = [
            torch.full((size,), 0xFF, dtype=torch.uint8, device=self.device)
            for size in sizes
            for _ in range(POISON_BLOCKS)
        ]
        del blocks

    def _held(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> dict[str, Any]:
        """What is wrong with the form of a twin's outputs; empty if nothing is."""
        import torch

        for n, value in enumerate(outputs):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return {"form": [n, f"a {type(value).__name__}"]}
            if value.layout != torch.strided or value.dtype not in _torch_types().values():
                return {"form": [n, f"a tensor of {value.dtype}, {value.layout}"]}
            for at, given in enumerate([*inputs, *self.weights.values()]):
                if value.numel() and _memory(value) == _memory(given):
                    return {"alias": [n, at]}
        return {}

    def _write(self, out: str, outputs: Sequence[Any]) -> None:
        import torch

        names = {dtype: name for name, dtype in _torch_types().items()}
        types = {dtype.name: dtype for dtype in TYPES}
        rows: list[Any] = []
        for value in outputs:
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy().data if flat.numel() else b""
            rows.append((types[names[value.dtype]], tuple(value.shape), data))
        with open(out, "r+b") as file:
            write_outputs(file, rows)
        if self.subject is not None:
            for value in outputs:  # a buffer that is kept for the next call holds no answer
                value.detach().untyped_storage().fill_(0xFF)

    def _return_inputs(self, places: Sequence[Mapping[str, Any]], tensors: Sequence[Any]) -> None:
        """Write a device's inputs back over their files, for the parent to compare."""
        import torch

        for place, tensor in zip(places, tensors, strict=True):
            if tensor.numel():
                with open(place["path"], "r+b") as file:
                    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                    file.write(data.numpy().data)


def _memory(tensor: Any) -> tuple[str, int]:
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _digest(tensor: Any) -> str:
    import torch

    if not tensor.numel():
        return ""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(flat.numpy().data, digest_size=16).hexdigest()


def _torch_types() -> dict[str, Any]:
    import torch

    return {d.name: getattr(torch, d.torch or "") for d in TYPES if hasattr(torch, d.torch or "-")}


if __name__ == "__main__":
    main()
