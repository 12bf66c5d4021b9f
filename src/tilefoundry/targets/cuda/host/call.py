"""A compiled program as a callable on torch tensors of one CUDA device.

Launches go to torch's current stream; nothing waits, so calls may be captured in a CUDA
graph. Parameters of a launch are packed once for each set of addresses; a call with tensors
that were packed before goes through ``repeat``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.build import Built
from tilefoundry.diag import refuse
from tilefoundry.emit.source import Argument
from tilefoundry.targets.cuda.emit.launches import LaunchPlan
from tilefoundry.targets.cuda.host import driver
from tilefoundry.targets.cuda.host.repeat import ELSEWHERE, Repeat, repeat

ALIGN = 16
"""Bytes that every tensor's address is a multiple of."""
KEPT = 256
"""Sets of addresses whose packed parameters are kept."""


class Packed:
    """One launch with its parameters in host memory, ready for the driver."""

    def __init__(
        self, plan: LaunchPlan, function: Any, pointers: list[int], stream: int
    ) -> None:  # fmt: skip
        self.plan = plan
        values = (ctypes.c_uint64 * max(1, len(pointers)))(*pointers)
        first = ctypes.addressof(values)
        places = [first + 8 * n for n in range(len(pointers))]
        self._maps = [driver.aligned(driver.MAP_BYTES, driver.MAP_ALIGN) for _ in plan.maps]
        places += [at for _, at in self._maps]
        parameters = (ctypes.c_void_p * max(1, len(places)))(*places)
        attributes = driver.attributes(plan.cooperative, plan.cluster)
        config = driver.Config(
            (plan.grid, 1, 1), (plan.threads, 1, 1), plan.shared_bytes, stream,
            attributes, len(attributes),
        )  # fmt: skip
        self._kept = values, parameters, attributes, config
        self.arguments = (
            ctypes.addressof(config), function.value, ctypes.addressof(parameters), None,
        )  # fmt: skip

    def encode(self, addresses: Sequence[int]) -> None:
        for (_, at), plan, address in zip(self._maps, self.plan.maps, addresses, strict=True):
            driver.encode(at, plan.dtype, address, plan.dims, plan.strides, plan.box, plan.swizzle)


class Compiled:
    """``compiled(*inputs)`` runs the program; ``weights`` by name are set before the first
    call that needs them."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self.weights: Mapping[str, Any] = {}
        arguments = built.source.arguments
        self._inputs = [a for a in arguments if a.role == "in"]
        self._outputs = [a for a in arguments if a.role == "out"]
        self._order = [a for a in arguments if a.role != "out"]
        self._plans: tuple[LaunchPlan, ...] = built.source.launches  # type: ignore[assignment]
        self._image = built.library.read_bytes()
        self._functions: dict[int, dict[str, Any]] = {}
        self._work: dict[tuple[int, int], Any] = {}
        self._packed: dict[tuple[int, ...], list[Packed]] = {}
        self._arrays: dict[tuple[int, ...], Any] = {}
        """The arguments of the packed launches, as C reads them."""
        import torch

        self._checks = [
            (getattr(torch, str(a.dtype.torch)), a.shape) for a in (*self._order, *self._outputs)
        ]
        self._repeat: Repeat | None = None
        self._again: Any = None
        """The repeat's call, once something is kept."""
        self._stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def __call__(self, *inputs: Any) -> Any:
        """The outputs: one tensor, or a tuple of several."""
        import torch

        given = self._given(inputs)
        device = getattr(given[0], "device", None) if given else "cuda"
        outs = [
            torch.empty(a.shape, dtype=getattr(torch, str(a.dtype.torch)), device=device)
            for a in self._outputs
        ]
        self._run(given, outs)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def into(self, outputs: Sequence[Any], *inputs: Any) -> None:
        """The same, into tensors that are there."""
        self._run(self._given(inputs), outputs)

    def _given(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if len(inputs) != len(self._inputs):
            names = " ".join(a.name for a in self._inputs)
            refuse("build-arguments", None, takes=names, given=len(inputs))
        if len(self._order) == len(self._inputs):
            return inputs
        left = iter(inputs)
        out: list[Any] = []
        for argument in self._order:
            if argument.role != "weight":
                out.append(next(left))
            elif argument.name in self.weights:
                out.append(self.weights[argument.name])
            else:
                refuse("build-weight", None, name=argument.name)
        return out

    def _run(self, given: Sequence[Any], outs: Sequence[Any]) -> None:
        if self._again is not None and len(outs) == len(self._outputs):
            status = self._again(*given, *outs)
            if not status:
                return
            if status != ELSEWHERE:
                driver.check(status, f"launching {self.built.source.name}")
        tensors = (*given, *outs)
        device, pointers = -1, list[int]()
        try:
            device = tensors[0].get_device()
            for x, (dtype, shape) in zip(tensors, self._checks, strict=True):
                at = x.data_ptr()
                if (
                    at % ALIGN or x.dtype is not dtype or x.shape != shape
                    or x.get_device() != device or not x.is_contiguous()
                ):  # fmt: skip
                    break
                pointers.append(at)
        except AttributeError:
            pass
        if len(pointers) != len(tensors) or device < 0:
            _refused(tensors, (*self._order, *self._outputs), device)
        stream: int = self._stream(device)
        key = (device, stream, *pointers)
        launches = self._packed.get(key)
        if launches is None:
            launches = self._prepared(key, device, stream, pointers)
        launch = driver.launcher()
        for x in launches:
            status = launch(*x.arguments)
            if status:
                driver.check(status, f"launching {x.plan.kernel}")
        if self._repeat is not None:
            self._repeat.keep(self._arrays[key], tensors)
            self._again = self._repeat.call

    def _prepared(
        self, key: tuple[int, ...], device: int, stream: int, pointers: list[int]
    ) -> list[Packed]:
        import torch

        functions = self._functions.get(device)
        if functions is None:
            torch.cuda.set_device(device)  # its context is the one that the module belongs to
            module = driver.load(self._image)
            functions = self._functions[device] = {
                p.kernel: driver.function(module, p.kernel, p.shared_bytes) for p in self._plans
            }
            for p in self._plans:
                driver.clusters_fit(functions[p.kernel], p)
        work = self._workspace(device, stream)
        order = [*self.built.source.arguments]
        mine = {a.name: p for a, p in zip((*self._order, *self._outputs), pointers, strict=True)}
        addresses = [mine[a.name] for a in order]

        def of(where: tuple[str, int]) -> int:
            return addresses[where[1]] if where[0] == "argument" else work + where[1]

        out: list[Packed] = []
        for plan in self._plans:
            packed = Packed(plan, functions[plan.kernel], [of(w) for w in plan.pointers], stream)
            packed.encode([of(m.where) for m in plan.maps])
            out.append(packed)
        if self._repeat is None:
            shapes = [shape for _, shape in self._checks]
            self._repeat = repeat(driver.launcher(), shapes, len(self._plans))
        if len(self._packed) >= KEPT:
            if self._repeat is not None:
                self._repeat.forget()
            self._packed.clear()
            self._arrays.clear()
        self._packed[key] = out
        words = [w for x in out for w in x.arguments[:3]]
        self._arrays[key] = (ctypes.c_void_p * len(words))(*words)
        return out

    def _workspace(self, device: int, stream: int) -> int:
        """Device memory of a stream's launches; zeros at first, as counters in it begin."""
        import torch

        size = self.built.source.workspace
        if not size:
            return 0
        if (device, stream) not in self._work:
            self._work[device, stream] = torch.zeros(size, dtype=torch.uint8, device=device)
        return self._work[device, stream].data_ptr()


def _refused(tensors: Sequence[Any], arguments: Sequence[Argument], device: int) -> None:
    """Refuses the first tensor that is not as the program says."""
    for x, a in zip(tensors, arguments, strict=True):
        found = f"a {type(x).__name__}"
        if hasattr(x, "get_device"):
            right = (
                str(x.dtype).removeprefix("torch.") == a.dtype.torch and x.shape == a.shape
                and x.get_device() == device >= 0 and x.is_contiguous()
                and x.data_ptr() % ALIGN == 0
            )  # fmt: skip
            if right:
                continue
            found = (f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} with strides "
                     f"{x.stride()} on {x.device} at {x.data_ptr():#x}")  # fmt: skip
        wanted = f"{a.dtype} {a.shape}, contiguous, on one CUDA device, aligned to {ALIGN} bytes"
        refuse("build-argument", None, name=a.name, wants=wanted, found=found)
