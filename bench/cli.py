"""Cold-process times of the command against their budgets.

    python bench/cli.py            prints the table
    python bench/cli.py --write    also keeps it as JSON under bench/results/

Each figure is the median of nine runs of a fresh process, which is what an agent waits for,
with the package's bytecode compiled, as an installed package has it: ``PYTHONDONTWRITEBYTECODE``
is taken away, and a run that is not counted writes it. ``build`` cold is the median of three runs,
each with an empty cache and so with the compiler's time; cached is the same command after it.
A budget holds for a machine of two cores; that of a long program is a second beyond start-up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import tilefoundry

RUNS, COLD_RUNS = 9, 3
REPOSITORY = Path(__file__).parents[1]
MODELS = Path(tilefoundry.__file__).parent / "models"
STATIC = ("--compute-cost", "--memory", "--roofline")

LONG = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(entry="f", target=CudaTarget("nvidia.h200_sxm"))
class Long:
    @func
    def f(x: Tensor[(1024, 1024), "f32"]):
{body}        return x
"""
GEMM = str(REPOSITORY / "examples" / "gpu" / "gemm_halves.py")
"""8192 x 17408 x 5120 in bf16."""
TOTAL = str(REPOSITORY / "tests" / "programs_cpu" / "total.py")
NVCC = os.environ.get("NVCC") or "nvcc"
CHAIN = LONG.format(body="        x = x + 1.0\n" * 1000)
DIAMOND = LONG.format(body="        x = x + x * x\n" * 250)
"""1,000 operations in a row; 500 in which every value is used twice."""


CACHE = Path(tempfile.gettempdir()) / "tilefoundry-bench-cache"


@dataclass(frozen=True)
class Case:
    """A command line, its budget in seconds, the exit code it must end with."""

    args: tuple[str, ...]
    budget: float
    exit: int = 0
    cold: bool = False
    """With a cache of its own, empty at each run."""


@dataclass(frozen=True)
class Row:
    """One case as measured, in seconds."""

    command: str
    median: float
    fastest: float
    budget: float
    within: bool


def cases(chain: str, product: str, long: str, diamond: str) -> list[Case]:
    """What there is to time."""
    layer = f"{MODELS / 'qwen3.py'}:Layer.decode"
    return [
        Case(("--help",), 0.15),
        Case(("tutorial",), 0.2),
        Case(("explain", "shard-indivisible"), 0.2),
        Case(("spec",), 0.4),
        Case(("target", "list"), 0.4),
        Case(("analyze", chain, *STATIC), 0.4),
        Case(("analyze", layer, *STATIC, "--dim", "ctx_len=37", "--dim", "seq=1"), 1.0),
        Case(("analyze", product, *STATIC), 0.5),
        Case(("analyze", long, *STATIC), 1.3),
        Case(("analyze", diamond, *STATIC), 1.3),
        Case(("analyze", GEMM), 0.5),
        Case(("analyze", GEMM, *STATIC), 0.5),
        Case(("schedule", "candidates", product), 0.5),
        Case(("schedule", "candidates", GEMM), 0.5),
        Case(("schedule", "plan", GEMM), 0.5),
        Case(("schedule", "finalize", GEMM), 0.5),
        Case(("schedule", "facts", "T.cuda.sm90.Wgmma", "--target", "nvidia.h200_sxm"), 0.5),
        *(
            Case(("build", program), 15.0 if cold else 0.3, cold=cold)
            for compiler, program in ((NVCC, GEMM), ("cc", TOTAL))
            if shutil.which(compiler)
            for cold in (True, False)
        ),
    ]


def measure(case: Case) -> Row:
    """Time ``case``, refusing to time a command that does not end as it should."""
    line = [sys.executable, "-m", "tilefoundry", *case.args]
    times: list[float] = []
    for run in range((COLD_RUNS if case.cold else RUNS) + 1):
        if case.cold:
            shutil.rmtree(CACHE, ignore_errors=True)
        start = time.perf_counter()
        done = subprocess.run(line, capture_output=True, encoding="utf-8", env=compiled())
        if run:  # the first one compiles
            times.append(time.perf_counter() - start)
        if done.returncode != case.exit:
            sys.exit(f"{' '.join(case.args)} ended with {done.returncode}:\n{done.stderr}")
    median = statistics.median(times)
    shown = " ".join(Path(a).name if ".py" in a else a for a in case.args)
    shown += {"build": ", cold" if case.cold else ", cached"}.get(case.args[0], "")
    return Row(shown, round(median, 4), round(min(times), 4), case.budget, median <= case.budget)


def compiled() -> dict[str, str]:
    """The environment, with bytecode kept in a folder of the benchmark's own."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    prefix = Path(tempfile.gettempdir()) / "tilefoundry-bench"
    return {**env, "PYTHONPYCACHEPREFIX": str(prefix), "TILEFOUNDRY_CACHE": str(CACHE)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Cold-process times of the command.")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            "chain.py": (REPOSITORY / "examples" / "hello_two_cuts.py").read_text(encoding="utf-8"),
            "optimal.py": program("50-schedule.md", "optimal.py"),
            "chain_1000.py": CHAIN,
            "diamond_500.py": DIAMOND,
        }
        paths = [Path(folder) / name for name in texts]
        for path in paths:
            path.write_text(texts[path.name], encoding="utf-8")
        rows = [measure(case) for case in cases(*map(str, paths))]
    width = max(len(row.command) for row in rows)
    print(f"{'command':<{width}}  median  budget")
    for row in rows:
        verdict = "" if row.within else "  OVER"
        print(f"{row.command:<{width}}  {row.median:5.3f}s  {row.budget:5.2f}s{verdict}")
    if write:
        keep(rows)
    sys.exit(0 if all(row.within for row in rows) else 1)


def program(page: str, name: str) -> str:
    """A program of a tutorial page."""
    text = (Path(tilefoundry.__file__).parent / "tutorial" / page).read_text(encoding="utf-8")
    return text.partition(f"```python file={name}\n")[2].partition("```")[0]


def keep(rows: list[Row]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    now = datetime.now(UTC)
    record = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit,
        "machine": machine(),
        "python": platform.python_version(),
        "runs": RUNS,
        "cold_runs": COLD_RUNS,
        "unit": "s",
        "rows": [asdict(row) for row in rows],
    }
    path = REPOSITORY / "bench" / "results" / f"cli-{now:%Y%m%d}-{commit}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


def machine() -> dict[str, object]:
    from tilefoundry.cli.doctor import processor

    return {"processor": processor(), "system": f"{platform.system()} {platform.machine()}"}


if __name__ == "__main__":
    main()
