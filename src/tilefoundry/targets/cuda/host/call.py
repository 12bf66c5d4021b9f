"""A compiled program as a callable on torch tensors of one CUDA device.

Launches go to torch's current stream of that device, whichever is current; nothing waits, so
calls may be captured in a CUDA graph. The first call on a stream goes the long way, which judges
tensors and refuses; later ones go through ``direct``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.build import Built
from tilefoundry.build.call import hold_apart
from tilefoundry.diag import refuse
from tilefoundry.emit.source import Argument
from tilefoundry.targets.cuda.emit.launches import LaunchPlan, Where
from tilefoundry.targets.cuda.host import driver
from tilefoundry.targets.cuda.host.direct import ELSEWHERE, Direct, direct
from tilefoundry.targets.cuda.host.graph import Graph, graph

ALIGN = 16
"""Bytes that every tensor's address is a multiple of."""


class Packed:
    """One launch with its parameters in host memory, ready for the driver."""

    def __init__(self, plan: LaunchPlan, pointers: Sequence[int], addresses: Sequence[int]) -> None:
        """``addresses``: of the tensors that the maps describe."""
        self.plan = plan
        values = (ctypes.c_uint64 * max(1, len(pointers)))(*pointers)
        first = ctypes.addressof(values)
        made = [driver.aligned(driver.MAP_BYTES, driver.MAP_ALIGN) for _ in plan.maps]
        self.maps = [at for _, at in made]
        places = [*(first + 8 * n for n in range(len(pointers))), *self.maps]
        self._parameters = (ctypes.c_void_p * max(1, len(places)))(*places)
        self._attributes = driver.attributes(plan)
        self._kept = values, made
        for at, m, address in zip(self.maps, plan.maps, addresses, strict=True):
            driver.encode(at, m.dtype, address, m.dims, m.strides, m.box, m.swizzle)

    @property
    def parameters(self) -> int:
        """Where the array of the parameters' places is."""
        return ctypes.addressof(self._parameters)

    def launch(self, function: int, stream: int) -> None:
        config = driver.config(self.plan, stream, self._attributes)
        status = driver.launcher()(ctypes.addressof(config), function, self.parameters, None)
        driver.check(status, f"launching {self.plan.kernel}")


class Compiled:
    """``compiled(*inputs)`` runs the program; ``weights`` by name are set before the first
    call that needs them."""

    def __init__(self, built: Built) -> None:
        import torch

        self.built = built
        self.weights: Mapping[str, Any] = {}
        arguments = built.source.arguments
        self._inputs = [a for a in arguments if a.role == "in"]
        self._outputs = [a for a in arguments if a.role == "out"]
        self._order = [*(a for a in arguments if a.role != "out"), *self._outputs]
        self._place = [self._order.index(a) for a in arguments]
        """Where each argument of the program stands in a call."""
        self._types = [getattr(torch, str(a.dtype.torch)) for a in self._order]
        self._plans = tuple(map(LaunchPlan.of, built.source.launches))
        self._image = built.library.read_bytes()
        self._functions: dict[int, Any] = {}
        """Arrays of the launches' functions by device."""
        self._work: dict[tuple[int, int, int], Any] = {}
        """Workspaces by device, stream and thread: launches of two threads may mix on a stream,
        and what one kernel leaves there is for the next of the same call."""
        self._captured: dict[tuple[int, int, int], tuple[int, Any]] = {}
        """So too the last capture and its graph's workspace."""
        self._graphs: dict[tuple[int, int, int], Graph | None] = {}
        """So too the launches as one, where there are several."""
        self._own = bool(built.source.workspace) or len(self._plans) > 1
        self._direct: Direct | None = None

    def __call__(self, *inputs: Any) -> Any:
        """The outputs: one tensor, or a tuple of several."""
        if self._direct is not None:
            made = self._direct.make(self.weights, *inputs)
            if type(made) is not int:
                return made
            self._launched(made)
        import torch

        given = self._given(inputs)
        device = getattr(given[0], "device", None) if given else "cuda"
        types = self._types[len(given) :]
        outs = [
            torch.empty(a.shape, dtype=dtype, device=device)
            for a, dtype in zip(self._outputs, types, strict=True)
        ]
        self._run(given, outs)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def into(self, outputs: Sequence[Any], *inputs: Any) -> None:
        """The same, into tensors that are there."""
        if self._direct is not None:
            status = self._direct.into(self.weights, outputs, *inputs)
            if not status:
                return
            self._launched(status)
        self._run(self._given(inputs), outputs)

    def _launched(self, status: int) -> None:
        if status != ELSEWHERE:
            driver.check(status, f"launching {self.built.source.name}")

    def _given(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Inputs and weights in the program's order."""
        if len(inputs) != len(self._inputs):
            names = " ".join(a.name for a in self._inputs)
            refuse("build-arguments", None, takes=names, given=len(inputs))
        left = iter(inputs)
        out: list[Any] = []
        for argument in self._order[: len(self._order) - len(self._outputs)]:
            if argument.role != "weight":
                out.append(next(left))
            elif argument.name in self.weights:
                out.append(self.weights[argument.name])
            else:
                refuse("build-weight", None, name=argument.name)
        return out

    def _run(self, given: Sequence[Any], outs: Sequence[Any]) -> None:
        import torch

        tensors = (*given, *outs)
        device = _judged(tensors, self._order, self._types)
        pointers = [x.data_ptr() for x in tensors]
        hold_apart(self._order, pointers)
        context = driver.primary(device)
        with driver.within(context):
            functions = self._loaded(device)
            stream: int = torch.cuda.current_stream(device).cuda_stream
            capture = driver.capture(stream) if self._own else None
            work = self._workspace(device, stream, capture)

            def of(where: Where) -> int:
                if where[0] == "work":
                    return work + where[1]
                return pointers[self._place[where[1]]]

            packed = [
                Packed(p, [of(w) for w in p.pointers], [of(m.where) for m in p.maps])
                for p in self._plans
            ]
            for x, function in zip(packed, functions, strict=True):
                x.launch(function, stream)
            if self._direct is None:
                self._direct = direct(self._order, self._types, self._plans, self._place,
                                      [x.maps for x in packed], self._own)  # fmt: skip
            if self._direct is not None and capture is None:
                where = device, stream, threading.get_ident()
                if where not in self._graphs:
                    parameters = [x.parameters for x in packed]
                    self._graphs[where] = graph(self._plans, functions, parameters)
                self._direct.keep(where, context, functions, work, self._graphs[where])

    def _loaded(self, device: int) -> Any:
        """The functions of the launches, as an array, in the context that is current."""
        if device not in self._functions:
            module = driver.load(self._image)
            found = [driver.function(module, p.kernel, p.shared_bytes) for p in self._plans]
            for p, function in zip(self._plans, found, strict=True):
                driver.clusters_fit(function, p)
            self._functions[device] = (ctypes.c_void_p * len(found))(*(f.value for f in found))
        return self._functions[device]

    def _workspace(self, device: int, stream: int, capture: int | None) -> int:
        """Device memory of this thread's launches on a stream; zeros at first, as counters in it
        begin. A graph has its own, as it may be replayed beside the stream that it was captured
        on, and sets it to zeros itself."""
        import torch

        def zeros() -> Any:
            return torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")

        size, where = self.built.source.workspace, (device, stream, threading.get_ident())
        if not size:
            return 0
        if capture is None:
            if where not in self._work:
                self._work[where] = zeros()
            return self._work[where].data_ptr()
        if self._captured.get(where, (None,))[0] != capture:
            self._captured[where] = capture, zeros()
        return self._captured[where][1].data_ptr()


def _judged(tensors: Sequence[Any], arguments: Sequence[Argument], types: Sequence[Any]) -> int:
    """The device of all tensors; refuses the first that is not as the program says."""
    device = -1
    if len(tensors) != len(arguments):
        names = " ".join(a.name for a in arguments)
        refuse("build-arguments", None, takes=names, given=len(tensors))
    for x, a, dtype in zip(tensors, arguments, types, strict=True):
        try:
            at, mine = x.data_ptr(), x.get_device()
            right = (
                x.dtype is dtype and tuple(x.shape) == a.shape and mine >= 0
                and device in (-1, mine) and x.is_contiguous() and not x.is_neg()
                and at and at % ALIGN == 0
            )  # fmt: skip
        except (AttributeError, RuntimeError):
            right, mine = False, device
        if not right:
            wanted = (
                f"{a.dtype} {a.shape}, contiguous, on one CUDA device, aligned to {ALIGN} bytes"
            )
            refuse("build-argument", None, name=a.name, wants=wanted, found=_said(x))
        device = mine
    return device


def _said(x: Any) -> str:
    """A tensor in words, or what else was given."""
    try:
        negated = ", to be read negated" if x.is_neg() else ""
        return (f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} with strides "
                f"{tuple(x.stride())} on {x.device} at {x.data_ptr():#x}{negated}")  # fmt: skip
    except (AttributeError, RuntimeError):
        return f"a {type(x).__name__}"
