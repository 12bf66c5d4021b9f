"""What the verifier catches and accepts, and how long it takes.

    python bench/verify.py                     all programs and the hand-built GEMMs
    python bench/verify.py gemm_rs softmax     these programs
    python bench/verify.py --write             also keeps the rows as JSON under bench/results/

One line of key=value per program (kernels accepted, milliseconds at full size, faults caught
at reduced size), then one per kind of fault. A fault counts as caught if a finding of a right
family is made. Exit 1 if a kernel is refused or a fault missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product

from cli import REPOSITORY, machine
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.program import PrimFunc
from tilefoundry.verify import verify

sys.path += [str(REPOSITORY / "tests" / part) for part in ("tir", "programs")]
import sizes  # pyright: ignore[reportMissingImports]
from faults import FAMILY, faults  # pyright: ignore[reportMissingImports]
from samples import gemm  # pyright: ignore[reportMissingImports]

REPEATS = 5


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


def kernels(case: str, consts: dict[str, object]) -> list[PrimFunc]:
    loaded = load_source(sizes.path(case), None, consts)
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
    options = parser.parse_args()
    put, caught = Counter[str](), Counter[str]()
    rows: list[Row] = []
    for case in options.programs or ["sample", *sizes.EVALUATE]:
        if case == "sample":
            small, full = samples()
        else:
            small = kernels(case, dict(sizes.EVALUATE[case]))
            full = kernels(case, {}) if "@" not in case else []
        rows.append(judge(case, small, full, put, caught))
        print(" ".join(f"{k}={v}" for k, v in asdict(rows[-1]).items()), flush=True)
    for kind in sorted(put):
        print(f"kind={kind} put={put[kind]} caught={caught[kind]}")
    total, right = sum(put.values()), sum(caught.values())
    print(f"total faults={total} caught={right} kernels={sum(r.kernels for r in rows)} "
          f"accepted={sum(r.accepted for r in rows)}")  # fmt: skip
    if options.write:
        write(rows, put, caught)
    return int(right < total or any(r.accepted < r.kernels for r in rows))


def write(rows: list[Row], put: Counter[str], caught: Counter[str]) -> None:
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
        "kinds": {kind: {"put": put[kind], "caught": caught[kind]} for kind in sorted(put)},
    }
    path = REPOSITORY / "bench" / "results" / f"verify-{now:%Y%m%d}-{commit}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    sys.exit(main())
