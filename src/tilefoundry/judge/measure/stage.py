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
) -> tuple[list[int], list[Any]]:
    """Nanoseconds and result of each call.

    Before each call one element of the inputs changes, so that no call repeats another. All
    results are kept: whichever is asked for afterwards must be there.
    """
    times: list[int] = []
    results: list[Any] = []
    for buffer, start, data in changes:
        if buffer is not None:
            buffer[start : start + len(data)] = data
        begin = clock()
        found = call(*args)
        end = clock()
        times.append(end - begin)
        results.append(found)
    return times, results


class Stage:
    """Requests of ``measure``, beside those of ``check``."""

    loaded: Any
    device: str
    subject: Any
    weights: dict[str, Any]
    _tensor: Any
    _held: Any
    _write: Any
    _spoil: Any

    _clock: Any = None
    """Of the device; none for a CPU."""

    def pin(self, cpus: Sequence[int], threads: int, device: str) -> dict[str, Any]:
        """Keep to some processors and to as many threads, and take a device's clock; before
        any library is there, and any author's code."""
        if cpus and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cpus)
        import torch

        torch.set_num_threads(threads)
        if device == "cpu":
            return {}
        from tilefoundry.build import host

        family, _, ordinal = device.partition(":")
        torch.zeros(1, device=device)  # its context
        self._clock = host(family, "clock").Clock(int(ordinal or 0))
        return {"l2": self._clock.l2_bytes}

    def idle(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Times of calls that do nothing, asked for in the form of :meth:`timed`."""
        spare = memoryview(bytearray(8))
        made = [(spare, at, bytes.fromhex(data)) for _, at, data in changes]
        times, _ = timed_calls(_nothing, (), made)
        return {"ns": times}

    def idle_device(self, held: int, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The device's clock around nothing, asked for in the form of :meth:`timed_device`."""
        import torch

        spare = torch.zeros(64, dtype=torch.uint8, device="cuda")
        made = [(spare.data_ptr(), bytes.fromhex(data)) for _, _, data in changes]
        stream = torch.cuda.current_stream().cuda_stream
        return self._clock.time(stream, held, made, _nothing)

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

    def stage(self, inputs: Sequence[Mapping[str, Any]], sets: int) -> dict[str, Any]:
        """Take the inputs that timed calls will use, ``sets`` times, in this process's own
        memory of the device."""
        import torch

        taken = [self._tensor(place, False)[2] for place in inputs]
        prepared = [[t.clone() for t in taken] for _ in range(sets)]
        self._tensors = prepared[0]
        if self._clock is None:
            self._buffers = [
                memoryview(t.reshape(-1).view(torch.uint8).numpy()).cast("B") if t.numel() else None
                for t in self._tensors
            ]
        else:
            self._places = [[t.data_ptr() for t in tensors] for tensors in prepared]
            self._stream = torch.cuda.current_stream().cuda_stream
        subject = self.subject
        self._back = getattr(subject, "tensors", None)
        if subject is None:
            self._call, self._sets = self._evaluation(), prepared
        elif hasattr(subject, "staged"):
            staged = [subject.staged(tensors) for tensors in prepared]
            self._call, self._sets = staged[0][0], [args for _, args in staged]
        else:
            name = self.loaded.func if self.loaded.is_twin else "__call__"
            self._call, self._sets = getattr(subject, name), prepared
        self._args = self._sets[0]
        self._results_kept: list[Any] = []
        return {}

    def _evaluation(self) -> Any:
        from tilefoundry.evaluate import evaluate

        module, func = self.loaded.module, self.loaded.func
        return lambda *tensors: evaluate(module, func, list(tensors), self.weights, self.device)

    def timed(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """One call per change; the results are kept, should one be asked for."""
        import torch

        made = [(self._buffers[n], at, bytes.fromhex(data)) for n, at, data in changes]
        self._results_kept.clear()
        with torch.no_grad():
            times, self._results_kept = timed_calls(self._call, self._args, made)
        return self._odd() or {"ns": times}

    def timed_device(
        self, held: int, sets: Sequence[int], changes: Sequence[Sequence[Any]]
    ) -> dict[str, Any]:
        """One call on each of the staged ``sets``, one element of each changed, behind
        ``held`` nanoseconds in which the device does nothing else."""
        import torch

        places = [(self._places[k][n] + at, bytes.fromhex(data))
                  for k, (n, at, data) in zip(sets, changes, strict=True) if data]  # fmt: skip
        call, given = self._call, [self._sets[k] for k in sets]
        kept = self._results_kept

        def run() -> None:
            for args in given:
                kept.append(call(*args))

        with torch.no_grad():
            found = self._clock.time(self._stream, held, places, run)
        return self._odd() or found

    def release(self) -> dict[str, Any]:
        """Give up the results of the last batch, outside the next one's time."""
        self._results_kept.clear()
        return {}

    def _odd(self) -> dict[str, Any]:
        """A result that is no plain tensor; empty where there is none."""
        import torch

        kinds = {type(found) for found in self._results_kept}
        odd = kinds - {torch.Tensor, torch.nn.Parameter, tuple, list}
        return {"form": [0, f"a {odd.pop().__name__}"]} if odd and self._back is None else {}

    def results(self, out: str, call: int, last: bool) -> dict[str, Any]:
        """Write the results of one of the last timed calls to the file ``out``; the ``last``
        time they are spoiled then."""
        found = self._results_kept[call]
        outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        if self._back is not None:
            outputs = tuple(self._back(x) for x in outputs)
        answer = self._held(outputs, self._tensors) if self.subject is not None else {}
        if not answer:
            self._write(out, outputs)
            if last and self.subject is not None:
                self._results_kept.clear()
                self._spoil(outputs)
        return answer

    def versions(self) -> dict[str, Any]:
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
