"""Memory-bound programs on the CPU, built by us, against torch and a copy of as many bytes.

    python bench/cpu/memory.py                   one line of key=value per case and thread count
    python bench/cpu/memory.py --threads 1,2     (default: 1 and all cores)
    python bench/cpu/memory.py --write           also keeps the rows under bench/results/

Every process measures one case with one count of threads: inputs larger than the caches, 3
warm-up rounds, then ROUNDS rounds in which each contender runs once, in an order that turns.
A time is the median of its process; a row holds the median over PROCESSES processes and their
spread. ``copy`` is the fastest of torch's and numpy's copies of as many bytes as the program
must move, so ``of_copy`` is the share of reachable bandwidth. torch runs eagerly and compiled
(torch.compile), whichever is faster, and its allocator is kept from returning memory to the
system. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs_cpu"
ROUNDS, WARM, PROCESSES = 15, 3, 3
ROWS, COLS, N = 4096, 4096, 1 << 24


@dataclass(frozen=True)
class Case:
    """A program, its constants, and how often each element of its main operand crosses memory."""

    program: str
    dtype: str
    constants: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    vecs: int = 4

    @property
    def name(self) -> str:
        return f"{self.program}_{self.dtype}"


TALL = {"ROWS": ROWS, "COLS": COLS}
CASES = (
    Case("chain", "f32", {"N": N}),
    Case("chain", "f16", {"N": 2 * N}),
    Case("rmsnorm", "f32", TALL),
    Case("rmsnorm", "bf16", TALL),
    Case("layernorm", "f32", TALL),
    Case("layernorm", "bf16", TALL),
    Case("softmax", "f32", TALL),
    Case("softmax", "bf16", TALL),
    Case("total", "f32", {"N": N}),
    Case("activations", "f32", {"N": N}, 2),
)


def target() -> tuple[str, int]:
    """The widest vectors that this machine has: target and f32 lanes."""
    from tilefoundry.build.machine import missing
    from tilefoundry.targets import load_target

    for name, lanes in (("amd.epyc_avx512", 16), ("x86_64.generic", 8)):
        if not missing(load_target(name).capabilities):
            return name, lanes
    sys.exit("this machine has neither AVX-512 nor AVX2")


def rivals(case: Case, t: dict[str, Any]) -> Callable[[], Any]:
    """What torch computes of the same inputs."""
    import torch
    from torch.nn.functional import gelu, layer_norm, rms_norm, silu

    def eager() -> Any:
        match case.program:
            case "chain":
                return (t["x"] * t["x"] + t["x"]) * t["x"]
            case "rmsnorm":
                added = t["h"] + t["mix"]
                return added, rms_norm(added, (COLS,), t["gamma"], 1e-5)
            case "layernorm":
                return layer_norm(t["x"], (COLS,), t["weight"], t["bias"], 1e-5)
            case "softmax":
                return torch.softmax(t["x"], -1)
            case "total":
                return t["x"].sum()
        x, y = t["x"], t["y"]
        more = x > y
        return silu(x) * gelu(y), torch.where(more, x.clamp(-0.5, 0.75), torch.tanh(y)), more

    return eager


def one(name: str, threads: int) -> dict[str, Any]:
    """Measures one case in this process."""
    import numpy as np
    import torch

    from tilefoundry.build import build
    from tilefoundry.build.call import Compiled
    from tilefoundry.lang.load import load_source
    from tilefoundry.ops.base import torch_dtype

    torch.set_num_threads(threads)
    case = next(c for c in CASES if c.name == name)
    where, lanes = target()
    consts = {**case.constants, "DTYPE": case.dtype, "CORES": threads, "TARGET": where,
              "LANES": lanes, "VECS": case.vecs if lanes == 16 else min(case.vecs, 2)}  # fmt: skip
    built = build(load_source(str(PROGRAMS / f"{case.program}.py"), None, consts))
    takes = [a for a in built.source.arguments if a.role != "out"]
    gives = [a for a in built.source.arguments if a.role == "out"]
    tensors = {a.name: torch.randn(a.shape).to(torch_dtype(a.dtype)) for a in takes}
    outs = [torch.empty(a.shape, dtype=torch_dtype(a.dtype)) for a in gives]
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: tensors[a.name] for a in takes if a.role == "weight"}
    given = [tensors[a.name] for a in takes if a.role == "in"]
    moved = sum(a.bytes for a in built.source.arguments)
    source, place = torch.ones(moved // 8), torch.empty(moved // 8)
    eager = rivals(case, tensors)
    contenders: dict[str, Callable[[], Any]] = {
        "ours": lambda: kernel.into(outs, *given),
        "copy_torch": lambda: place.copy_(source),
        "copy_numpy": lambda: np.copyto(place.numpy(), source.numpy()),
        "torch": eager,
    }
    try:
        compiled = torch.compile(eager)
        compiled()
        contenders["torch_compiled"] = compiled
    except Exception as error:  # no C++ compiler: the eager rival stands alone
        print(f"# torch.compile: {type(error).__name__}", file=sys.stderr)
    times: dict[str, list[float]] = {c: [] for c in contenders}
    order = list(contenders)
    for round in range(WARM + ROUNDS):
        for c in order[round % len(order) :] + order[: round % len(order)]:
            begin = time.perf_counter()
            contenders[c]()
            seconds = time.perf_counter() - begin
            if round >= WARM:
                times[c].append(seconds)
    return {"bytes": moved, "target": where, "seconds": {c: median(t) for c, t in times.items()}}


@dataclass(frozen=True)
class Row:
    """One case: GB/s of ours, of a copy and of torch, and their quotients."""

    case: str
    threads: int
    target: str
    megabytes: float
    ours: float
    copy: float
    torch: float
    rival: str
    of_copy: float
    over_torch: float
    spread: float

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in asdict(self).items())


def measure(name: str, threads: int) -> Row:
    """The medians of several processes."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(1 << 28),
    }
    found: list[dict[str, Any]] = []
    for _ in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, str(threads)],
            env=env, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    moved = found[0]["bytes"]
    speeds = {c: [moved / f["seconds"][c] / 1e9 for f in found] for c in found[0]["seconds"]}
    middle = {c: median(s) for c, s in speeds.items()}
    copy = max(middle[c] for c in middle if c.startswith("copy"))
    rival = max((c for c in middle if c.startswith("torch")), key=lambda c: middle[c])
    ours = speeds["ours"]
    spread = (max(ours) - min(ours)) / middle["ours"]
    return Row(
        name, threads, found[0]["target"], round(moved / 1e6, 1), round(middle["ours"], 2),
        round(copy, 2), round(middle[rival], 2), rival, round(middle["ours"] / copy, 3),
        round(middle["ours"] / middle[rival], 3), round(spread, 3),
    )  # fmt: skip


def keep(rows: list[Row]) -> None:
    import torch

    from tilefoundry.build.compiler import compiler
    from tilefoundry.cli.doctor import processor

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    now = datetime.now(UTC)
    record = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "machine": {
            "processor": processor(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "compiler": compiler()[1],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "units": {"ours": "GB/s", "copy": "GB/s", "torch": "GB/s", "megabytes": "MB"},
        "rows": [asdict(row) for row in rows],
    }
    path = REPOSITORY / "bench" / "results" / f"cpu-memory-{now:%Y%m%d}-{record['commit']}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory-bound programs on the CPU.")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]))))
        return
    rows: list[Row] = []
    for threads in dict.fromkeys(int(t) for t in given.threads.split(",")):
        for case in CASES:
            if not given.cases or case.name in given.cases.split(","):
                rows.append(measure(case.name, threads))
                print(rows[-1], flush=True)
    if given.write:
        keep(rows)


if __name__ == "__main__":
    main()
