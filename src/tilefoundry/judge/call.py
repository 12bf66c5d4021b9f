"""The child's side of a call: inputs at their addresses, the call, outputs copied out.

Nothing here decides: the parent compares the bytes of inputs, of what lies around them, and of
every copy of the outputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.diag import Refusal
from tilefoundry.judge.channel import TYPES, write_outputs
from tilefoundry.judge.withheld import Recorder, recorder

POISON = 0xFF
"""Byte of memory that nobody wrote: NaN in every float that has one, -1 in integers."""
M_PERTURB = -6
"""glibc's malloc.h: the option of mallopt that MALLOC_PERTURB_ sets."""
POISON_BLOCKS = 2
"""Freed blocks of each output's size that hold poison before a run."""


class Calls:
    """Requests that call the function; :class:`~tilefoundry.judge.child.Program` has the rest."""

    loaded: Any
    device: str
    subject: Any
    weights: dict[str, Any]
    open: Any

    def __init__(self) -> None:
        self._held_inputs: dict[str, tuple[Any, Any, Any]] = {}
        """By file: its bytes, the device's copy of all of them, the tensor."""
        self._results: dict[str, tuple[Any, ...]] = {}
        """Outputs of the ``first`` call of a case, of the ``last``, and of the ``former``."""

    recorder: Recorder | None = None
    """What notes calls of libraries, where a twin may make none."""

    def rules(self, libraries: bool) -> dict[str, Any]:
        """What the candidate may do. From now on memory that nobody wrote holds poison: glibc
        fills what it hands out with 0xFE and what it takes back with 0x01."""
        self._results, self._held_inputs = {}, {}
        self.recorder = None if libraries else recorder()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_PERTURB, 1)
        return {}

    def run(
        self, inputs: Sequence[Mapping[str, Any]], out: str, poison: Sequence[int]
    ) -> dict[str, Any]:
        """Call the function once and write its outputs to ``out``.

        Inputs in a file of the last call are at the same addresses, all others at new ones.
        ``poison`` are the outputs' sizes in bytes: freed memory of these sizes is filled first,
        so that memory which nobody wrote does not hold a former result.
        """
        import torch

        former = self._held_inputs
        self._held_inputs = {at["path"]: self._taken(at, former) for at in inputs}
        del former
        tensors = [tensor for _, _, tensor in self._held_inputs.values()]
        self._poison(poison)
        recorder = self.recorder() if self.recorder else contextlib.nullcontext()
        with torch.no_grad(), self._stream(), recorder:
            found = self._called(tensors)
        outputs = outputs_of(found)
        del found
        if self.recorder and self.recorder.called:
            return {"library": self.recorder.called.pop(0)}
        answer = self._held(outputs, tensors) if self.subject is not None else {}
        if answer:
            return answer
        with self._stream():  # as a caller sees them: what it did not wait for is not there
            self._write(out, outputs)
        self._settle()
        self._return_inputs()
        if self.subject is not None:  # the evaluator's may be its inputs
            self._results.setdefault("first", outputs)
            if "last" in self._results:
                self._results["former"] = self._results["last"]
            self._results["last"] = outputs
        return {}

    def again(self, out: str, which: str, kept: Sequence[int]) -> dict[str, Any]:
        """Write outputs anew: of the ``last`` call; of the ``former``, which are then spoiled; or
        of the ``first``, with which the case ends. On a device the inputs of the last call, but
        for those numbered ``kept``, are spoiled before; on a CPU the parent has done so."""
        if self.device != "cpu" and which == "last":
            for n, (_, buffer, _) in enumerate(self._held_inputs.values()):
                if n not in kept and buffer is not None:
                    buffer.fill_(POISON)
        self._settle()
        outputs = self._results[which]
        self._write(out, outputs)
        if which == "first":
            self._results.clear()
        elif which == "former" and outputs is not self._results["first"]:
            self._spoil(outputs)
        return {}

    def exact(self, inputs: Sequence[Mapping[str, Any]], out: str, most: int) -> dict[str, Any]:
        """Evaluate the function in float64, whatever its own types, and write the first ``most``
        elements of each output."""
        import torch

        from tilefoundry.evaluate import evaluate
        from tilefoundry.ops.base import in_float64

        module, func = self.loaded.module, self.loaded.func
        tensors = [_wide(self._taken(at, {})[2]) for at in inputs]
        weights = {name: _wide(value) for name, value in self.weights.items()}
        try:
            with torch.no_grad(), in_float64():
                outputs = evaluate(module, func, tensors, weights, self.device)
        except Refusal as refusal:
            return {"why": refusal.diags[0].says}
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return {"why": f"an operation has no float64 form: {first[:80]}"}
        self._write(out, [value.reshape(-1)[:most] for value in outputs])
        return {}

    def _called(self, tensors: Sequence[Any]) -> Any:
        if self.subject is None:
            from tilefoundry.evaluate import evaluate

            module, func = self.loaded.module, self.loaded.func
            return evaluate(module, func, list(tensors), self.weights, self.device)
        called = self.subject
        if self.loaded.is_twin:
            called = getattr(self.subject, self.loaded.func)
        return called(*tensors)

    def _stream(self) -> Any:
        """The stream of a caller, before and after a call, whichever the function leaves; none
        of a CPU."""
        if self.device == "cpu":
            return contextlib.nullcontext()
        import torch

        return torch.cuda.stream(torch.cuda.default_stream(self.device))

    def _settle(self) -> None:
        """Wait for all work on the device, whichever stream it is on."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize(self.device)

    def _taken(self, place: Mapping[str, Any], former: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """An input where its file says; a file of the last call holds new values by now."""
        known = former.get(place["path"])
        if known is None:
            return self._tensor(place, True)
        data, buffer, tensor = known
        if buffer is not None:
            import torch

            buffer.copy_(torch.frombuffer(data, dtype=torch.uint8))
        return data, buffer, tensor

    def _tensor(self, place: Mapping[str, Any], shared: bool) -> tuple[Any, Any, Any]:
        """A tensor over the bytes of a file, seen by the parent if ``shared``, else private;
        with the file's bytes and, on a device, the copy of all of them that it lies in."""
        import torch

        dtype = torch_types()[place["dtype"]]
        shape, offset = place["shape"], place["offset"]
        if 0 in shape:
            return None, None, torch.empty(shape, dtype=dtype, device=self.device)
        with self.open(place["path"], "r+b" if shared else "rb") as file:
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            data = mmap.mmap(file.fileno(), 0, access=access)
        strides = place.get("strides") or torch.empty(shape, device="meta").stride()
        span = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
        buffer = None
        if shared and self.device != "cpu":
            whole = buffer = torch.frombuffer(data, dtype=torch.uint8).to(self.device)
        else:
            whole = torch.frombuffer(data, dtype=torch.uint8)
        flat = whole[offset : offset + span * dtype.itemsize]
        if offset % dtype.itemsize:
            flat = flat.clone()
        tensor = torch.as_strided(flat.view(dtype), shape, strides)
        return data, buffer, tensor if shared else tensor.to(self.device)

    def _poison(self, sizes: Sequence[int]) -> None:
        import torch

        blocks = [
            torch.full((size,), POISON, dtype=torch.uint8, device=self.device)
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
            if value.layout != torch.strided or value.dtype not in torch_types().values():
                return {"form": [n, f"a tensor of {value.dtype}, {value.layout}"]}
            if value.device.type != torch.device(self.device).type:
                return {"form": [n, f"a tensor on {value.device}"]}
            if value.is_neg() or value.is_conj():
                return {"form": [n, "a view that negates when it is read"]}
            others = [*inputs, *self.weights.values(), *outputs[:n]]
            for at, given in enumerate(others):
                if _overlap(value, given) and not self._in_place(n, at, len(inputs)):
                    return {"alias": [n, at]}
        return {}

    def manners(self) -> dict[str, Any]:
        """How results may lie in memory, by what a twin declares."""
        if not self.loaded.is_twin:
            return {"in_place": {}, "static": False, "watched": self.subject is not None}
        from tilefoundry.runtime import twin_declaration

        declared, func = twin_declaration(self.loaded.cls), self.loaded.func
        return {"in_place": dict(declared.in_place.get(func, {})),
                "static": func in declared.static, "watched": True}  # fmt: skip

    def _in_place(self, output: int, at: int, inputs: int) -> bool:
        """Whether the twin declares that an output is memory of the input numbered ``at``."""
        func = self.loaded.module.funcs[self.loaded.func]
        names = [p.name for p in func.params if p.name not in func.weights]
        return at < inputs and self.manners()["in_place"].get(names[at]) == output

    def _write(self, out: str, outputs: Sequence[Any]) -> None:

        names = {dtype: name for name, dtype in torch_types().items()}
        types = {dtype.name: dtype for dtype in TYPES}
        rows: list[Any] = []
        for value in outputs:
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = bytes_of(flat) if flat.numel() else b""
            rows.append((types[names[value.dtype]], tuple(value.shape), data))
        with self.open(out, "r+b") as file:
            write_outputs(file, rows)

    def _spoil(self, outputs: Sequence[Any]) -> None:
        """Poison outputs that were copied: a buffer kept for the next call holds no answer."""
        import torch

        for value in outputs:
            if value.numel():
                memory = torch.empty(0, dtype=torch.uint8, device=value.device)
                memory.set_(value.detach().untyped_storage())
                start = value.data_ptr() - value.storage_offset() * value.element_size()
                _bytes_of(value, memory, start).fill_(POISON)

    def _return_inputs(self) -> None:
        """Write a device's inputs, and what lies around them, back over their files."""
        for data, buffer, _ in self._held_inputs.values():
            if buffer is not None:
                data[:] = bytes_of(buffer.cpu())


def outputs_of(found: Any) -> tuple[Any, ...]:
    """What a function returned, one by one: what lies in its tuple or list, whatever that would
    say of itself."""
    for kind in (tuple, list):
        if issubclass(type(found), kind):
            return tuple(kind.__iter__(found))
    return (found,)


def bytes_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor on the CPU; they keep the tensor alive."""
    kind = ctypes.c_ubyte * (tensor.numel() * tensor.element_size())
    memory: Any = kind.from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memoryview(memory).cast("B")


def _wide(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _overlap(a: Any, b: Any) -> bool:
    """Whether two tensors have a byte of memory in common."""
    if not a.numel() or not b.numel() or a.device != b.device:
        return False
    (low, high), (least, most) = _extent(a), _extent(b)
    if high <= least or most <= low:
        return False
    import torch

    base = min(low, least)
    taken = torch.zeros(max(high, most) - base, dtype=torch.bool)
    _bytes_of(a, taken, base).fill_(True)
    return bool(_bytes_of(b, taken, base).any())


def _extent(tensor: Any) -> tuple[int, int]:
    """The first byte of a tensor's elements and the one past the last."""
    reach = sum((e - 1) * s for e, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


def _bytes_of(tensor: Any, memory: Any, base: int) -> Any:
    """The part of ``memory``, which stands for the bytes from ``base`` on, that a tensor has."""
    item = tensor.element_size()
    strides = [*(s * item for s in tensor.stride()), 1]
    return memory.as_strided([*tensor.shape, item], strides, tensor.data_ptr() - base)


def torch_types() -> dict[str, Any]:
    """The torch dtype of each element type that torch has."""
    import torch

    return {d.name: getattr(torch, d.torch or "") for d in TYPES if hasattr(torch, d.torch or "-")}
