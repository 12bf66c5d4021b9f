"""The child's side of a measurement: calls on staged inputs, each timed next to the call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Protocol


class Subject(Protocol):
    """What is called: prepared arguments, and results as torch tensors again."""

    def staged(self, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any]]: ...

    def tensors(self, found: Any) -> Any: ...


def _nothing(*_: Any) -> None:
    return None


def timed_calls(
    call: Any,
    args: Sequence[Any],
    changes: Sequence[tuple[Any, int, bytes]],
    clock: Any = perf_counter_ns,
) -> tuple[list[int], set[type], Any]:
    """Nanoseconds of each call, the types of the results, the last result.

    Before each call one element of the inputs changes, so that no call repeats another. Giving
    up the former result is part of a call: its memory can be used again.
    """
    times: list[int] = []
    kinds: set[type] = set()
    found = None
    for buffer, start, data in changes:
        if buffer is not None:
            buffer[start : start + len(data)] = data
        begin = clock()
        found = None
        found = call(*args)
        end = clock()
        times.append(end - begin)
        kinds.add(type(found))
    return times, kinds, found


class Stage:
    """Requests of ``measure``, beside those of ``check``."""

    loaded: Any
    device: str
    subject: Any
    weights: dict[str, Any]
    _tensor: Any
    _held: Any
    _write: Any

    def pin(self, cpus: Sequence[int], threads: int) -> dict[str, Any]:
        """Keep to some processors and to as many threads; before any library is there."""
        if cpus and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cpus)
        import torch

        torch.set_num_threads(threads)
        return {"threads": torch.get_num_threads()}

    def idle(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Times of calls that do nothing, asked for in the form of :meth:`timed`."""
        spare = memoryview(bytearray(8))
        made = [(spare, at, bytes.fromhex(data)) for _, at, data in changes]
        times, _, _ = timed_calls(_nothing, (), made)
        return {"ns": times}

    def rival(self, library: str, expression: str, dims: Mapping[str, int]) -> dict[str, Any]:
        """Make ``expression`` what is called; without one, name those that may be right."""
        from tilefoundry.judge.measure.rival import expressions, subject

        module, func = self.loaded.module, self.loaded.module.funcs[self.loaded.func]
        if not expression:
            return {"expressions": expressions(module, func, library, dims)}
        self.subject = subject(module, func, library, expression, dims)
        return {}

    def work(self, dims: Mapping[str, int], target: str) -> dict[str, Any]:
        """Operations and bytes that the function cannot do without."""
        from tilefoundry.diag import Refusal
        from tilefoundry.judge.measure.floor import work_of

        try:
            return work_of(self.loaded.module, self.loaded.func, dims, target)
        except Refusal as refusal:
            return {"why": "; ".join(d.says for d in refusal.diags)}

    def stage(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Take the inputs that timed calls will use, in ordinary memory of this process."""
        import torch

        tensors = [self._tensor(place, False).clone() for place in inputs]
        self._tensors = tensors
        self._buffers = [
            memoryview(t.reshape(-1).view(torch.uint8).numpy()).cast("B") if t.numel() else None
            for t in tensors
        ]
        subject = self.subject
        self._back = getattr(subject, "tensors", None)
        if subject is None:
            self._call, self._args = self._evaluation(), tensors
        elif hasattr(subject, "staged"):
            self._call, self._args = subject.staged(tensors)
        else:
            name = self.loaded.func if self.loaded.is_twin else "__call__"
            self._call, self._args = getattr(subject, name), tensors
        return {}

    def _evaluation(self) -> Any:
        from tilefoundry.evaluate import evaluate

        module, func = self.loaded.module, self.loaded.func
        return lambda *tensors: evaluate(module, func, list(tensors), self.weights, self.device)

    def timed(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """One call per change; the results of the last are kept, should they be asked for."""
        import torch

        made = [(self._buffers[n], at, bytes.fromhex(data)) for n, at, data in changes]
        self._found = None
        with torch.no_grad():
            times, kinds, self._found = timed_calls(self._call, self._args, made)
        odd = kinds - {torch.Tensor, torch.nn.Parameter, tuple, list}
        if odd and self._back is None:
            return {"form": [0, f"a {odd.pop().__name__}"]}
        return {"ns": times}

    def results(self, out: str) -> dict[str, Any]:
        """Write the results of the last timed call to the file ``out``."""
        found, self._found = self._found, None
        outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        if self._back is not None:
            outputs = tuple(self._back(x) for x in outputs)
        answer = self._held(outputs, self._tensors) if self.subject is not None else {}
        if not answer:
            self._write(out, outputs)
        return answer

    def libraries(self) -> dict[str, Any]:
        """What the libraries say of themselves in this process."""
        from tilefoundry.judge.measure.libraries import describe

        return {"libraries": describe()}

    def witness(self) -> dict[str, Any]:
        """One call while oneDNN and MKL name the kernels that they choose, on stdout."""
        import torch

        with torch.no_grad(), contextlib.ExitStack() as said:
            for library in (torch.backends.mkldnn, torch.backends.mkl):
                if library.is_available():
                    said.enter_context(library.verbose(1))
            self._call(*self._args)
        return {}
