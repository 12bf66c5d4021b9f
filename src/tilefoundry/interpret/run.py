"""Running a kernel, and a program of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tilefoundry.interpret.kernel import kernel_of
from tilefoundry.interpret.machine import Machine
from tilefoundry.interpret.memory import poison
from tilefoundry.interpret.report import Report, Reports, Stop
from tilefoundry.interpret.schedule import Schedule
from tilefoundry.ops.base import torch_dtype
from tilefoundry.tir.program import Buffer, PrimFunc, Program


@dataclass(frozen=True)
class Outcome:
    """What an execution gave: its outputs in order, and what was wrong."""

    outputs: list[torch.Tensor]
    reports: list[Report]


def run(
    func: PrimFunc,
    inputs: list[torch.Tensor],
    *,
    seed: int = 0,
    policy: str = "random",
    max_steps: int = 2_000_000,
    limit: int = 8,
) -> Outcome:
    """Executes one kernel on its inputs, in the order of its parameters.

    ``seed`` and ``policy`` (``POLICIES``) pick the schedule; the run ends after ``limit``
    findings or ``max_steps`` steps. Outputs start as poison. Work buffers among the
    parameters are allocated here.
    """
    given = iter(inputs)
    tensors: dict[Buffer, torch.Tensor] = {}
    for param in func.params:
        if param.role == "in":
            value = next(given)
            assert tuple(value.shape) == param.shape, (param.name, tuple(value.shape))
            assert value.dtype == torch_dtype(param.dtype), (param.name, value.dtype)
            tensors[param] = value.contiguous().clone()
        else:
            tensors[param] = poisoned(param)
    for buffer in func.buffers:
        if buffer.storage == "gmem":
            tensors[buffer] = poisoned(buffer)
    reports = Reports(limit)
    with torch.no_grad(), one_thread():
        try:
            machine = Machine(kernel_of(func), tensors, Schedule(policy, seed), reports, max_steps)
            machine.run()
        except Stop:
            pass
    return Outcome([tensors[p] for p in func.params if p.role == "out"], reports.found)


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps are small: torch's own threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def poisoned(buffer: Buffer) -> torch.Tensor:
    dtype = torch_dtype(buffer.dtype)
    return torch.full(buffer.shape, poison(dtype), dtype=dtype)


def run_program(
    program: Program,
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor] | None = None,
    *,
    seed: int = 0,
    policy: str = "random",
    max_steps: int = 2_000_000,
    limit: int = 8,
) -> Outcome:
    """Executes the launches of a program in order; values between them live in device
    memory. ``inputs`` and ``weights`` by the names of the program."""
    values = {**inputs, **(weights or {})}
    reports: list[Report] = []
    for launch in program.launches:
        taken = [values[name] for name in launch.inputs]
        found = run(program.kernels[launch.kernel], taken, seed=seed, policy=policy,
                    max_steps=max_steps, limit=limit)  # fmt: skip
        reports += found.reports
        values.update(zip(launch.outputs, found.outputs, strict=True))
        if len(reports) >= limit:
            break
    blank = torch.empty(0)
    return Outcome([values.get(name, blank) for name in program.results], reports)
