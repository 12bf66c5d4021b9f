"""The child's side of a measurement: calls on staged inputs, each timed next to the call."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

import tilefoundry
from tilefoundry.judge.call import outputs_of, torch_types
from tilefoundry.judge.measure.raw import PROBE, Reader
from tilefoundry.judge.measure.window import Window


class Subject(Protocol):
    """What is called: prepared arguments, and results as torch tensors again."""

    def staged(self, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any]]: ...

    def tensors(self, found: Any) -> Any: ...


class StandIn:
    """A program of ours in place of an author's: it reads each input and writes each result, of
    the same types and shapes, and leaves nothing for later."""

    is_twin, func = False, "stand_in"

    def __init__(self, outputs: Sequence[Sequence[Any]], device: str) -> None:
        kinds = torch_types()
        self._device = device
        self._forms = [(list(shape), kinds[dtype]) for dtype, shape in outputs]

    def staged(self, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        return self, tensors

    def tensors(self, found: Any) -> Any:
        return found

    def __call__(self, *inputs: Any) -> Any:
        import torch

        for given in inputs:
            given.clone()
        return tuple(
            torch.full(shape, 1, dtype=kind, device=self._device) for shape, kind in self._forms
        )


def timed_calls(
    call: Any,
    given: Sequence[Sequence[Any]],
    renewals: Sequence[Callable[[], object]],
    clock: Any = perf_counter_ns,
) -> tuple[list[int], list[Any]]:
    """Nanoseconds and result of each call on the arguments ``given`` for it.

    Before each call its inputs are renewed, so that no call repeats another. All results are
    kept: whichever is asked for afterwards must be there.
    """
    times: list[int] = []
    results: list[Any] = []
    for args, renew in zip(given, renewals, strict=True):
        renew()
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
    open: Any
    _tensor: Any
    _held: Any
    _spoil: Any

    _xor: Any
    _windows: list[dict[int, Window]]
    _clock: Any = None
    """Of the device; none for a CPU."""
    _reader: Reader
    _lying: Sequence[Sequence[Any]] = ()
    """Outputs whose places were told."""

    def pin(self, cpus: Sequence[int], threads: int, device: str) -> dict[str, Any]:
        """Keep to some processors and to as many threads, and take a device's clock; before
        any library is there, and any author's code."""
        if cpus and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cpus)
        import numpy
        import torch

        torch.set_num_threads(threads)
        self._xor = numpy.bitwise_xor
        if device == "cpu":
            self._reader = Reader(device)
            self._probe = ctypes.create_string_buffer(PROBE)
            return {"probe": ctypes.addressof(self._probe)}
        from tilefoundry.build import host

        family, _, ordinal = device.partition(":")
        torch.cuda.set_device(int(ordinal or 0))  # whose streams are meant where none is named
        torch.zeros(1, device=device)  # its context
        self._clock = host(family, "clock").Clock(int(ordinal or 0))
        self._reader = Reader(device, self._clock)
        return {"l2": self._clock.l2_bytes}

    def free(self) -> dict[str, Any]:
        """Bytes of the device's memory that no process holds."""
        import torch

        return {"free": torch.cuda.mem_get_info(self._reader.device)[0]}

    def stand_in(self, outputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Make a program of ours what is called."""
        self.loaded = self.subject = StandIn(outputs, self._reader.device)
        return {}

    def rival(self, library: str, expression: str, dims: Mapping[str, int]) -> dict[str, Any]:
        """Make ``expression`` what is called; without one, name those that may be right."""
        from tilefoundry.judge.measure.rival import expressions, subject

        module, func = self.loaded.module, self.loaded.module.funcs[self.loaded.func]
        if not expression:
            return {"expressions": expressions(module, func, library, dims)}
        self.subject = subject(module, func, library, expression, dims)
        return {}

    def floors(self, dims: Mapping[str, int], target: str, threads: int) -> dict[str, Any]:
        """The least time that the facts of a target allow the function."""
        from tilefoundry.judge.measure.floor import floors_of

        return floors_of(self.loaded.module, self.loaded.func, dims, target, threads)

    def stage(
        self, inputs: Sequence[Mapping[str, Any]], sets: int, own: Sequence[int],
        restored: Sequence[int], renewed: Sequence[Sequence[Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Take the inputs that timed calls will use, in this process's own memory of the device:
        those numbered ``own`` once for each of ``sets``, the others once. ``restore`` gives those
        ``restored`` their first values again; ``renewed`` are numbers of inputs, what they are
        renewed from, and masks of it."""
        import torch

        taken = [self._tensor(place, False)[2] for place in inputs]
        once = [t.clone() for t in taken]
        self._tensors = prepared = [
            [t.clone() if n in own else once[n] for n, t in enumerate(taken)] for _ in range(sets)
        ]
        self._first = {n: taken[n] for n in restored}
        sources: dict[int, list[Any]] = {
            n: [None if at is None else self._tensor(at, False)[2] for at in places]
            for n, *places in renewed
        }
        self._windows = [
            {
                n: Window(tensors[n].reshape(-1).view(base.dtype), base, mask)
                for n, (base, mask) in sources.items()
            }
            for tensors in prepared
        ]
        if self._clock is None:
            self._windows = [{n: w.arrays() for n, w in each.items()} for each in self._windows]
        else:
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
        self._results_kept: list[Any] = []
        self._used: Sequence[int] = ()
        return {}

    def restore(self, sets: Sequence[int]) -> dict[str, Any]:
        """Undo what calls wrote into their inputs, outside any call's time."""
        for k in sets:
            for n, tensor in self._first.items():
                self._tensors[k][n].copy_(tensor)
        if self._clock is not None:
            self._clock.settle()
        return {}

    def _evaluation(self) -> Any:
        from tilefoundry.evaluate import evaluate

        module, func = self.loaded.module, self.loaded.func
        return lambda *tensors: evaluate(module, func, list(tensors), self.weights, self.device)

    def renew(self, set: int, changes: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Renew the inputs of a set before caches are filled with other data."""
        for n, at, mask in changes:
            self._windows[set][n].renew(self._xor, at, mask)
        return {}

    def timed(
        self, sets: Sequence[int], changes: Sequence[Sequence[Sequence[int]]], still: bool = False
    ) -> dict[str, Any]:
        """One call on each of the staged ``sets``, whose inputs are renewed right before; the
        results are kept, should they be asked for. ``still``: answers where they lie, since this
        process will be stopped when they are read."""
        made = [partial(self.renew, k, rows) for k, rows in zip(sets, changes, strict=True)]
        self._results_kept.clear()
        self._lying = ()
        self._used = sets
        given = [self._sets[k] for k in sets]
        with self._reader.no_grad():
            times, self._results_kept = timed_calls(self._call, given, made)
        if odd := self._odd():
            return odd
        if not still:
            return {"ns": times}
        self._lying = [self._outputs(call) for call in range(len(times))]
        return {"ns": times, **self._reader.where_all(self._lying)}

    def timed_device(
        self, held: int, sets: Sequence[int], changes: Sequence[Sequence[Sequence[int]]],
        cold: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """One call on each of the staged ``sets``, all of whose inputs were renewed, behind
        ``held`` nanoseconds in which the device does nothing else; on ``cold`` data after other
        data filled its caches."""
        places = [
            self._windows[k][n].addresses(at, mask)
            for k, rows in zip(sets, changes, strict=True)
            for n, at, mask in rows
        ]
        call, given = self._call, [self._sets[k] for k in sets]
        kept, self._used = self._results_kept, sets

        def run() -> None:
            for args in given:
                kept.append(call(*args))

        with self._reader.no_grad():
            found = self._clock.time(self._stream, held, run, places, cold)
        return self._odd() or found

    def release(self) -> dict[str, Any]:
        """Give up the results of the last batch, outside the next one's time."""
        self._results_kept.clear()
        self._lying = ()
        return {}

    def _odd(self) -> dict[str, Any]:
        """A result that is no plain tensor; empty where there is none."""
        import torch

        kinds = {type(found) for found in self._results_kept}
        plain = (torch.Tensor, torch.nn.Parameter)
        odd = {kind for kind in kinds if kind not in plain and not issubclass(kind, tuple | list)}
        return {"form": [0, f"a {odd.pop().__name__}"]} if odd and self._back is None else {}

    def results(self, out: str, calls: Sequence[int]) -> dict[str, Any]:
        """Write the results of some of the last timed calls to the file ``out``."""
        found = [self._outputs(call) for call in calls]
        with self.open(out, "r+b") as file:
            return self._reader.write_all(file, found)

    def look(self, call: int) -> dict[str, Any]:
        """What is wrong with where the results of a call lie."""
        if self.subject is None:
            return {}
        return self._held(self._outputs(call), self._tensors[self._used[call]])

    def spoil(self, calls: Sequence[int]) -> dict[str, Any]:
        """Overwrite results that were given: a buffer kept for the next call holds none."""
        if self.subject is not None:
            for call in calls:
                self._spoil(self._outputs(call))
        return self.release()

    def _outputs(self, call: int) -> tuple[Any, ...]:
        outputs = outputs_of(self._results_kept[call])
        return outputs if self._back is None else tuple(self._back(x) for x in outputs)

    def parts(self) -> dict[str, Any]:
        """Files that this process executes: of modules, none of ours, and of a kernel."""
        ours = str(Path(tilefoundry.__file__).parent)
        files = {str(getattr(m, "__file__", None) or "") for m in list(sys.modules.values())}
        found = {path for path in files if not path.startswith(ours)}
        built = getattr(self.subject, "built", None)
        if built is not None:
            found.add(str(built.library))
        return {"files": sorted(path for path in found if path.startswith("/"))}

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
            self._call(*self._sets[0])
        return {}
