"""Every GPU program at a small size under compute-sanitizer's tools.

One process a tool executes all programs; nothing but their kernels runs on the device. Prints a
line for each tool and for each program that it complains of; exit code 1 if there is one.

    python bench/gpu/sanitize.py [--tool memcheck ...] [CASE ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

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
SECONDS = 300
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
            more = SLACK * want.value.abs().max() if case.startswith("gemm_fp8") else 0.0
            wrong = misses(out.cpu(), want._replace(bound=want.bound + more))
            if wrong:
                print(f"========= wrong: {wrong}", flush=True)
    print("case end", flush=True)


def watched(tool: str, cases: list[str]) -> list[str]:
    """What a tool says, a line for each program."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    began = time.perf_counter()
    done = subprocess.run(
        [program, "--tool", tool, *TOOLS[tool], sys.executable, __file__, "--execute", *cases],
        capture_output=True, text=True, timeout=SECONDS,
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    case = "start"
    for line in done.stdout.splitlines():
        if line.startswith("case "):
            case = line[5:]
            found[case] = []
        elif line.startswith("=========") and not re.match(r"=+\s*(COMPUTE-SANIT|$)", line):
            found.setdefault(case, []).append(line.lstrip("= "))
    found.pop("end", None)
    bad = [f"{tool} {case}: {' | '.join(said[:4])}" for case, said in found.items() if said]
    if case != "end":
        bad.append(f"{tool} {case}: did not end: {(done.stderr or done.stdout)[-400:]!r}")
    spent = time.perf_counter() - began
    print(f"{tool}: {len(found)} programs, {len(bad)} with complaints, {spent:.0f} s", flush=True)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", action="append", choices=tuple(TOOLS))
    parser.add_argument("--execute", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    cases = given.cases or sorted(INTERPRET)
    if given.execute:
        executed(cases)
        return 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(pool.map(built, cases))
    tools = given.tool or list(TOOLS)
    with ThreadPoolExecutor(len(tools)) as pool:
        bad = [line for found in pool.map(lambda t: watched(t, cases), tools) for line in found]
    print("\n".join(bad))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
