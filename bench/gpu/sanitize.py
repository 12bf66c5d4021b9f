"""Every GPU program at a small size under compute-sanitizer's tools.

Processes of some programs each run beside one another; nothing but the programs' kernels runs on
the device. Prints a line for each program and tool as soon as it ended, ``clean`` or what the
tool complains of; exit code 1 if it does. A program that does not end is stopped and said.

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
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from programs.reference import REFERENCES, inputs, misses  # noqa: E402
from programs.sizes import INTERPRET, path  # noqa: E402
from tilefoundry.build import build, callable_of  # noqa: E402
from tilefoundry.lang.load import load_source  # noqa: E402

TOOLS = {
    "memcheck": (), "racecheck": ("--racecheck-report", "all"), "synccheck": (),
    "initcheck": (),
}  # fmt: skip
PROCESSES = 6
"""For each tool; as many of all together as there are processors, less a few for the tools."""
SPARE = 4
STARTING = 60.0
"""Seconds until a process comes to its first program."""
QUIET = r"=+\s*(COMPUTE-SANIT|.*SUMMARY: 0 |$)"
SLACK = 2.0**-9
"""What the tensor cores' own sums of 8-bit floats may add, of the largest element."""


def built(case: str) -> None:
    build(load_source(path(case), None, INTERPRET[case]))


def executed(cases: list[str]) -> None:
    """Runs the programs, in the process that a tool watches."""
    import torch

    for case in cases:
        print(f"case {case}", flush=True)
        loaded = load_source(path(case), None, INTERPRET[case])
        func = loaded.module.funcs[loaded.func]
        values = inputs({p.name: p.type for p in func.params})
        kernel = callable_of(build(loaded))
        kernel.weights = {n: values[n].cuda() for n in func.weights}
        outs = kernel(*(values[p.name].cuda() for p in func.params if p.name not in func.weights))
        torch.cuda.synchronize()
        wanted = REFERENCES[case.split("@")[0]](values, loaded.python)
        for out, want in zip(outs if isinstance(outs, tuple) else (outs,), wanted, strict=True):
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
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    process = subprocess.Popen(
        [program, "--tool", tool, *TOOLS[tool], sys.executable, __file__, "--execute", *cases],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    lines: Queue[str | None] = Queue()
    Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    found: dict[str, list[str]] = {}
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
            found.setdefault(case, []).append(f"did not end: {' | '.join(other[-4:])}")
        if line is None or (line.startswith("case ") and not ended):
            if case:
                _print(tool, case, found[case], time.perf_counter() - began)
            if line is None:
                process.wait()
                return found
            case, began = line[5:], time.perf_counter()
            found[case] = []
        elif line.startswith("=========") and not re.match(QUIET, line):
            found.setdefault(case or cases[0], []).append(line.lstrip("= "))
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
    parser.add_argument("--execute", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one program")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    cases = given.cases or sorted(INTERPRET)
    if given.execute:
        executed(cases)
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
