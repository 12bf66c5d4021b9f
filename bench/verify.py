"""What the verifier and the interpreter catch and accept, and how long the verifier takes.

    python bench/verify.py                     all programs and the hand-built GEMMs
    python bench/verify.py gemm_rs cpu/softmax these programs; cpu/ is before those for CPUs
    python bench/verify.py --write             also keeps the rows as JSON under bench/results/

One line of key=value per program (kernels accepted, milliseconds at full size, faults caught
at reduced size), then one per kind of fault. The verifier catches a fault if it makes a
finding of a right family; the interpreter, at its smaller sizes, if an execution under one of
its policies reports something or computes something else: it can only find what an execution
reaches. Then ``--schedules`` random programs (500): accepted by the verifier, executed
without a report, equal to the evaluator. Exit 1 if a kernel is refused, a fault missed by the
verifier, or a schedule not right.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import torch

from cli import REPOSITORY, machine
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import POLICIES, run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.ops.base import torch_dtype
from tilefoundry.tir.program import PrimFunc, Program
from tilefoundry.verify import verify

sys.path += [str(REPOSITORY / "tests" / part) for part in ("", "tir", "programs")]
import sizes  # pyright: ignore[reportMissingImports]
from faults import FAMILY, faults  # pyright: ignore[reportMissingImports]
from reference import inputs  # pyright: ignore[reportMissingImports]
from samples import gemm  # pyright: ignore[reportMissingImports]
from schedules import schedule  # pyright: ignore[reportMissingImports]

from programs_cpu import cases  # pyright: ignore[reportMissingImports]

REPEATS = 5
CPU = {f"cpu/{name}": consts for name, consts in cases.SMALL.items()}
EVALUATE = {**sizes.EVALUATE, **CPU}
INTERPRET = {**sizes.INTERPRET, **CPU}


@dataclass(frozen=True)
class Row:
    """One program: its kernels, how many are accepted (at both sizes), milliseconds to verify
    the slowest at full size (0: not measured), faults put in and caught."""

    program: str
    kernels: int
    accepted: int
    ms: float
    faults: int
    caught: int


def path(case: str) -> str:
    return cases.path(case.removeprefix("cpu/")) if case in CPU else sizes.path(case)


def kernels(case: str, consts: dict[str, object]) -> list[PrimFunc]:
    loaded = load_source(path(case), None, consts)
    return list(lower(loaded.module, loaded.func or "").kernels.values())


def milliseconds(kernel: PrimFunc) -> float:
    """The median of a few runs, processor time of this process."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.process_time()
        verify(kernel)
        times.append(time.process_time() - start)
    return round(sorted(times)[REPEATS // 2] * 1e3, 1)


def judge(name: str, small: list[PrimFunc], full: list[PrimFunc], put: Counter[str],
          caught: Counter[str]) -> Row:  # fmt: skip
    """One program at a reduced size with its faults, and at full size with its time."""
    mine = Counter[str]()
    for fault in (f for kernel in small for f in faults(kernel)):
        put[fault.kind] += 1
        found = {f.code for f in verify(fault.func)} & set(FAMILY[fault.kind])
        mine["put"] += 1
        mine["caught"] += bool(found)
        caught[fault.kind] += bool(found)
        if not found:
            print(f"missed program={name} kind={fault.kind} at={fault.where!r}")
    every = [*small, *full]
    accepted = sum(not refused(k) for k in every)
    slowest = max((milliseconds(k) for k in full), default=0.0)
    return Row(name, len(every), accepted, slowest, mine["put"], mine["caught"])


@dataclass(frozen=True)
class Executed:
    """Faults of one program at the size for interpretation, and those that show."""

    program: str
    faults: int
    shown: int


def executed(case: str) -> Executed:
    """Every fault of every kernel of a program, executed until one schedule shows it."""
    loaded = load_source(path(case), None, dict(INTERPRET[case]))
    program = lower(loaded.module, loaded.func or "")
    params = loaded.module.funcs[loaded.func].params
    given = (cases.drawn if case in CPU else inputs)({p.name: p.type for p in params})
    right = run_program(program, given).outputs
    put = shown = 0
    for name, kernel in program.kernels.items():
        for fault in faults(kernel):
            put += 1
            broken = replace(program, kernels={**program.kernels, name: fault.func})
            if shows(broken, given, right):
                shown += 1
            else:
                print(f"unseen program={case} kind={fault.kind} at={fault.where!r}")
    return Executed(case, put, shown)


def shows(program: Program, given: dict[str, Any], right: list[Any]) -> bool:
    """Some schedule reports the fault, or gives another result."""
    for seed, policy in enumerate(POLICIES):
        found = run_program(program, given, policy=policy, seed=seed, limit=1)
        if found.reports:
            return True
        pairs = zip(found.outputs, right, strict=True)
        if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs):
            return True
    return False


def schedules(count: int) -> int:
    """How many of ``count`` random programs are accepted, run clean and right."""
    right = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.py"
        for seed in range(count):
            path.write_text(schedule(seed), encoding="utf-8")
            loaded = load_source(str(path), None, {})
            program = lower(loaded.module, loaded.func or "")
            (param,) = loaded.module.funcs[loaded.func].params
            generator = torch.Generator().manual_seed(seed)
            x = torch.randint(-2, 3, param.tensor.shape, generator=generator)
            x = x.to(torch_dtype(param.tensor.dtype))
            (want,) = evaluate(loaded.module, loaded.func, [x])
            policy = POLICIES[seed % len(POLICIES)]
            found = run_program(program, {"x": x}, seed=seed, policy=policy)
            accepted = not any(refused(k) for k in program.kernels.values())
            clean = not found.reports and torch.equal(found.outputs[0], want)
            right += accepted and clean
            if not accepted or not clean:
                print(f"schedule seed={seed} policy={policy} accepted={accepted} {found.reports}")
    return right


def refused(kernel: PrimFunc) -> bool:
    """A finding other than of capacity, which is the program's own."""
    found = [f for f in verify(kernel) if f.code != "smem-capacity"]
    for f in found:
        print(f"refused kernel={kernel.name} {f}")
    return bool(found)


def samples() -> tuple[list[PrimFunc], list[PrimFunc]]:
    """The hand-built GEMM in small variants, and at full size."""
    small = [
        gemm(stages=s, k_steps=k, groups=g, storer=storer)
        for s, k, g, storer in product((1, 2, 3), (0, 1, 3, 4, 7), (1, 2), ("own", "loader"))
    ]
    return small, [gemm(tiles=(64, 68), k_steps=80, ctas=132)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--schedules", type=int, default=500)
    options = parser.parse_args()
    put, caught = Counter[str](), Counter[str]()
    rows: list[Row] = []
    for case in options.programs or ["sample", *EVALUATE]:
        if case == "sample":
            small, full = samples()
        else:
            small = kernels(case, dict(EVALUATE[case]))
            full = kernels(case, {}) if "@" not in case else []
        rows.append(judge(case, small, full, put, caught))
        print(" ".join(f"{k}={v}" for k, v in asdict(rows[-1]).items()), flush=True)
    for kind in sorted(put):
        print(f"kind={kind} put={put[kind]} caught={caught[kind]}")
    total, right = sum(put.values()), sum(caught.values())
    print(f"total faults={total} caught={right} kernels={sum(r.kernels for r in rows)} "
          f"accepted={sum(r.accepted for r in rows)}")  # fmt: skip
    torch.set_num_threads(1)
    runs: list[Executed] = []
    for case in options.programs or INTERPRET:
        if case != "sample":
            runs.append(executed(case))
            print(" ".join(f"{k}={v}" for k, v in asdict(runs[-1]).items()), flush=True)
    print(f"interpreter faults={sum(r.faults for r in runs)} shown={sum(r.shown for r in runs)}")
    clean = schedules(options.schedules)
    print(f"schedules drawn={options.schedules} right={clean}")
    if options.write:
        write(rows, put, caught, runs, (options.schedules, clean))
    bad = right < total or clean < options.schedules
    return int(bad or any(r.accepted < r.kernels for r in rows))


def write(rows: list[Row], put: Counter[str], caught: Counter[str], runs: list[Executed],
          drawn: tuple[int, int]) -> None:  # fmt: skip
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    now = datetime.now(UTC)
    record = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit,
        "machine": machine(),
        "python": platform.python_version(),
        "runs": REPEATS,
        "unit": "ms",
        "rows": [asdict(r) for r in rows],
        "interpreted": [asdict(r) for r in runs],
        "schedules": {"drawn": drawn[0], "right": drawn[1]},
        "kinds": {kind: {"put": put[kind], "caught": caught[kind]} for kind in sorted(put)},
    }
    path = REPOSITORY / "bench" / "results" / f"verify-{now:%Y%m%d}-{commit}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    sys.exit(main())
