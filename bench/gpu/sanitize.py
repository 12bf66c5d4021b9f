"""Every GPU program at a small size under compute-sanitizer's tools.

Processes of some programs each run beside one another; nothing but the programs' kernels runs on
the device. Prints a line for each program and tool as soon as it ended, ``clean`` or what the
tool complains of; exit code 1 if it does. A program that does not end is stopped and said.

Two things that the tools do not follow are kept from them. racecheck knows no order between
``__syncwarp`` and the arrival of one lane for its warp (``race.cu`` shows it): it is given the
programs with an arrival of each thread instead, which the verifier accepts too. initcheck does
not see what bulk copies store: outputs hold NaN before a call, so that what nobody wrote is found
by the comparison with float64.

    python bench/gpu/sanitize.py [--tool memcheck ...] [--seconds N] [CASE ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from math import prod
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from programs.reference import REFERENCES, inputs, misses  # noqa: E402
from programs.sizes import INTERPRET, path  # noqa: E402
from tilefoundry.build import build_program, callable_of  # noqa: E402
from tilefoundry.lang.load import load_source  # noqa: E402
from tilefoundry.lower.finalize import finalize  # noqa: E402
from tilefoundry.tir.plans import participants  # noqa: E402
from tilefoundry.tir.program import (  # noqa: E402
    Barrier,
    For,
    Issue,
    PrimFunc,
    Program,
    Stmt,
    Sync,
    When,
    With,
    walk,
)
from tilefoundry.verify import verify  # noqa: E402

TOOLS = {
    "memcheck": (), "racecheck": ("--racecheck-report", "all"), "synccheck": (),
    "initcheck": (),
}  # fmt: skip
PROCESSES = 6
"""For each tool; as many of all together as there are processors, less a few for the tools."""
SPARE = 4
STARTING = 60.0
"""Seconds until a process comes to its first program."""
OPTIONS = ("--show-backtrace", "no")
QUIET = r"=+\s*(COMPUTE-SANIT|.*SUMMARY: |$)"
"""What is no complaint: the summary at the end counts those of all programs of a process."""
SLACK = 2.0**-9
"""What the tensor cores' own sums of 8-bit floats may add, of the largest element."""


def program(case: str, apart: bool) -> Program:
    """The program of a case; ``apart``: each thread arrives for itself."""
    made, findings = finalize(load_source(path(case), None, INTERPRET[case]))
    assert not findings, findings
    if not apart:
        return made
    kernels = {name: spread(func) for name, func in made.kernels.items()}
    wrong = [f for func in kernels.values() for f in verify(func)]
    assert not wrong, wrong
    return replace(made, kernels=kernels)


def spread(func: PrimFunc) -> PrimFunc:
    """``func`` with an arrival of each participant where one arrives for several."""
    more: dict[Barrier, dict[tuple[int, ...], int]] = {}
    level = func.target.levels[-1]
    for stmt, mesh in walk(func.body):
        if isinstance(stmt, Sync) and stmt.kind == "arrive" and stmt.every > 1:
            units = tuple(participants(mesh, func).units(level))
            each = len(units) - len(units) // stmt.every
            more.setdefault(stmt.barrier, {})[units] = each * prod(a.extent for a in stmt.over)  # type: ignore[arg-type]
    fresh = {b: replace(b, count=b.count + sum(more.get(b, {}).values())) for b in func.barriers}

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(statement(s) for s in stmts)

    def statement(stmt: Stmt) -> Stmt:
        if isinstance(stmt, (With, For, When)):
            return replace(stmt, body=body(stmt.body))
        if isinstance(stmt, Issue) and "barrier" in stmt.attrs:
            return replace(stmt, attrs={**stmt.attrs, "barrier": fresh[stmt.attrs["barrier"]]})
        if isinstance(stmt, Sync) and stmt.barrier is not None:
            every = 1 if stmt.kind == "arrive" and stmt.every > 1 else stmt.every
            count = fresh[stmt.barrier].count if stmt.kind == "init" else stmt.count
            return replace(stmt, barrier=fresh[stmt.barrier], every=every, count=count)
        return stmt

    return replace(func, body=body(func.body), barriers=tuple(fresh[b] for b in func.barriers))


def built(case: str) -> None:
    for apart in (False, True):
        build_program(program(case, apart))


def executed(cases: list[str], apart: bool) -> None:
    """Runs the programs, in the process that a tool watches."""
    import torch

    for case in cases:
        print(f"case {case}", flush=True)
        loaded = load_source(path(case), None, INTERPRET[case])
        func = loaded.module.funcs[loaded.func]
        values = inputs({p.name: p.type for p in func.params})
        kernel = callable_of(build_program(program(case, apart)))
        kernel.weights = {n: values[n].cuda() for n in func.weights}
        outs = []
        for a in (a for a in kernel.built.source.arguments if a.role == "out"):
            bits = torch.full((a.bytes,), 0xFF, dtype=torch.uint8).cuda()
            outs.append(bits.view(getattr(torch, a.dtype.torch)).reshape(a.shape))
        plain = (values[p.name].cuda() for p in func.params if p.name not in func.weights)
        kernel.into(outs, *plain)
        torch.cuda.synchronize()
        wanted = REFERENCES[case.split("@")[0]](values, loaded.python)
        for out, want in zip(outs, wanted, strict=True):
            more = SLACK * want.value.abs().max() if case.endswith("@fp8") else 0.0
            wrong = misses(out.cpu(), want._replace(bound=want.bound + more))
            if wrong:
                print(f"========= wrong: {wrong}", flush=True)
    print("case end", flush=True)


def watched(tool: str, cases: list[str], seconds: float) -> int:
    """How many programs a tool complains of, or do not end within ``seconds``."""
    bad = 0
    while cases:
        ended = _watched(tool, cases, seconds)
        bad += sum(1 for said in ended.values() if said)
        cases = [c for c in cases if c not in ended]
    return bad


def _watched(tool: str, cases: list[str], seconds: float) -> dict[str, list[str]]:
    """What a tool says of the programs that one process came to."""
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    way = "apart" if tool == "racecheck" else "plain"
    process = subprocess.Popen(
        [found, "--tool", tool, *OPTIONS, *TOOLS[tool], sys.executable, __file__, "--execute", way,
         *cases],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    lines: Queue[str | None] = Queue()
    Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    said: dict[str, list[str]] = {}
    case, began, ended, other = "", time.perf_counter(), False, list[str]()
    while True:
        left = seconds + (0.0 if case else STARTING) + began - time.perf_counter()
        try:
            line = lines.get(timeout=max(0.0, left))
        except Empty:
            os.killpg(process.pid, signal.SIGKILL)
            other = [f"more than {seconds:.0f} s"]
            line = None
        ended = ended or line == "case end"  # what the tool says at its end may come after it
        if line is None and not ended:
            case = case or cases[0]
            said.setdefault(case, []).append(f"did not end: {' | '.join(other[-4:])}")
        if line is None or (line.startswith("case ") and not ended):
            if case:
                _print(tool, case, said[case], time.perf_counter() - began)
            if line is None:
                process.wait()
                return said
            case, began = line[5:], time.perf_counter()
            said[case] = []
        elif line.startswith("=========") and not re.match(QUIET, line):
            said.setdefault(case or cases[0], []).append(line.lstrip("= "))
        else:
            other.append(line)


def _read(stream: Iterable[str], lines: Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _print(tool: str, case: str, said: list[str], spent: float) -> None:
    print(f"{tool} {case} {spent:.1f} s: {' | '.join(said[:6]) or 'clean'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", action="append", choices=tuple(TOOLS))
    parser.add_argument("--execute", choices=("plain", "apart"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one program")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    cases = given.cases or sorted(INTERPRET)
    if given.execute:
        executed(cases, given.execute == "apart")
        return 0
    began = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(pool.map(built, cases))
    print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
    parts = [(tool, cases[n::PROCESSES]) for tool in given.tool or TOOLS for n in range(PROCESSES)]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - SPARE)) as pool:
        bad = sum(pool.map(lambda x: watched(*x, given.seconds), parts))
    spent = time.perf_counter() - began
    print(f"{len(cases)} programs, {bad} complaints, {spent:.0f} s", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
