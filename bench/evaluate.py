"""Times of the evaluator: the tutorial's optimal GEMM and how far it is from float64, and loops
of many trips.

    python bench/evaluate.py                   512 x 1024 x 256 and the loops, on the CPU
    python bench/evaluate.py --device cuda     also 8192 x 17408 x 5120 on the device
    python bench/evaluate.py --write           also keeps the rows as JSON under bench/results/

One line of key=value per case; exit 1 if one is over its budget or outside its bound.
``worst`` is the largest error as a share of what the program's own arithmetic may err by:
products of bf16 are exact in float32, a sum of K of them in any order errs by at most
K u / (1 - K u) of the sum of their magnitudes with u = 2^-24 (Higham, Accuracy and Stability,
4.2), and one rounding to bf16 by 2^-8 of the value. Loops are held to the same bits with their
trips in turn (``same_bits``), on as many trips as that takes a second for.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from cli import REPOSITORY, machine, program
from tilefoundry.evaluate import evaluate
from tilefoundry.evaluate.run import Evaluator
from tilefoundry.lang.load import load_source


@dataclass(frozen=True)
class Case:
    """Sizes that the program's constants are given, where it runs, its budget in seconds."""

    m: int
    n: int
    k: int
    group: int
    device: str
    budget: float


@dataclass(frozen=True)
class Row:
    """One case as measured: seconds of one evaluation, largest error over its bound."""

    m: int
    n: int
    k: int
    device: str
    seconds: float
    budget: float
    worst: float
    within: bool

    def __str__(self) -> str:
        values = asdict(self).items()
        return " ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in values)


LOOPS = {
    "rmsnorm_rows": """
        for r in range(ROWS):
            row = x[r:r + 1, :]
            s = tf.reduce(row * row, (1,), True, "mean")
            out = tf.insert_slice(out, row * tf.rsqrt(s + 1e-6) * w, (r, 0))""",
    "softmax_rows_of_units": """
        with Mesh(("core",), layout=(2,), names=("c",)) as core:
            for r in range(core.c, ROWS, 2):
                out = tf.insert_slice(out, tf.softmax(x[r:r + 1, :], 1), (r, 0))""",
    "silu_rows": """
        for r in range(ROWS):
            out = tf.insert_slice(out, tf.silu(x[r:r + 1, :]) * w, (r, 0))""",
    "sums_in_turn": """
        total = x[0:1, :]
        for r in range(1, ROWS):
            total = total + x[r:r + 1, :] * w
        out = tf.insert_slice(out, total, (0, 0))""",
}
"""Bodies of a function of x, w and out."""
TRIPS, COLS, FEW = 24000, 768, 1000
LOOP = """\
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

ROWS, COLS = {rows}, {cols}


@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 2),))
class Loop:
    @func
    def f(x: Tensor[(ROWS, COLS), "f32"], w: Tensor[(COLS,), "f32"]):
        out = tf.zeros(Tensor[(ROWS, COLS), "f32"])
{body}
        return out
"""


@dataclass(frozen=True)
class LoopRow:
    """One loop as measured: seconds of one evaluation, and whether its bits are those in turn."""

    loop: str
    trips: int
    cols: int
    device: str
    seconds: float
    budget: float
    same_bits: bool
    within: bool

    __str__ = Row.__str__


def measure_loop(name: str, device: str, folder: Path) -> LoopRow:
    """Time one evaluation of :data:`TRIPS` trips; compare those of the first :data:`FEW` rows."""
    few, _ = evaluated(name, FEW, device, folder, in_turn=False)
    turn, _ = evaluated(name, FEW, device, folder, in_turn=True)
    _, seconds = evaluated(name, TRIPS, device, folder, in_turn=False)
    same = torch.equal(few, turn)
    budget = 20.0 if name == "sums_in_turn" else 3.0
    within = same and seconds <= budget
    return LoopRow(name, TRIPS, COLS, device, round(seconds, 3), budget, same, within)


def evaluated(
    name: str, rows: int, device: str, folder: Path, *, in_turn: bool
) -> tuple[Any, float]:
    """The result of a loop of :data:`LOOPS` and the seconds that it took."""
    path = folder / f"{name}{rows}.py"
    path.write_text(LOOP.format(rows=rows, cols=COLS, body=LOOPS[name].strip("\n")))
    loaded = load_source(str(path), None, {})
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=draw).to(device) for shape in ((rows, COLS), (COLS,))]
    evaluator = Evaluator(loaded.module, device)
    evaluator.in_turn = in_turn
    start = time.perf_counter()
    (out,) = evaluator.call(loaded.module.funcs["f"], inputs, {})
    float(out[0, 0])  # waits
    return out, time.perf_counter() - start


def cases(device: str) -> list[Case]:
    """The reduced size on the CPU; on another device the full size too.

    A group of rows of tiles may not be taller than the matrix: 512 rows are 4 tiles.
    """
    reduced = Case(512, 1024, 256, 4, "cpu", 5.0)
    return [reduced] if device == "cpu" else [reduced, Case(8192, 17408, 5120, 16, device, 30.0)]


def measure(case: Case, path: Path) -> Row:
    """Time one evaluation, of inputs that lie on the device already."""
    loaded = load_source(
        str(path), None, {"M": case.m, "N": case.n, "K": case.k, "GROUP": case.group}
    )
    draw = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(shape, generator=draw).bfloat16().to(case.device)
        for shape in ((case.m, case.k), (case.k, case.n))
    )
    float((a[:128].float() @ b[:, :256].float()).sum())  # starts the device and its libraries
    start = time.perf_counter()
    (c,) = evaluate(loaded.module, loaded.func, [a, b], device=case.device)
    float(c[0, 0])  # waits
    seconds = time.perf_counter() - start
    worst = error(a, b, c)
    within = seconds <= case.budget and worst <= 1
    return Row(
        case.m, case.n, case.k, case.device, round(seconds, 3), case.budget, round(worst, 4), within
    )


def error(a: Any, b: Any, c: Any) -> float:
    """The largest error of ``c`` as a share of its bound, a panel of rows at a time."""
    k = a.shape[1]
    share = k * 2.0**-24 / (1 - k * 2.0**-24)
    b = b.double()
    worst = 0.0
    for rows, got in zip(a.split(1024), c.split(1024), strict=True):
        exact = rows.double() @ b
        slack = share * (rows.double().abs() @ b.abs())
        bound = 2.0**-8 * (exact.abs() + slack) + slack
        ratio = (got.double() - exact).abs() / bound
        worst = max(worst, float("inf") if bool(ratio.isnan().any()) else float(ratio.max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description="Times of the evaluator.")
    parser.add_argument("--device", default="cpu", help="a torch device for the full size")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimal.py"
        path.write_text(program("50-schedule.md", "optimal.py"), encoding="utf-8")
        rows: list[Row | LoopRow] = []
        for case in cases(given.device):
            rows.append(measure(case, path))
            print(rows[-1], flush=True)
        for name in LOOPS:
            rows.append(measure_loop(name, given.device, Path(folder)))
            print(rows[-1], flush=True)
    if given.write:
        keep(rows, given.device)
    sys.exit(0 if all(row.within for row in rows) else 1)


def keep(rows: list[Row | LoopRow], device: str) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    now = datetime.now(UTC)
    record = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "machine": machine(),
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": [asdict(row) for row in rows],
    }
    path = REPOSITORY / "bench" / "results" / f"evaluate-{now:%Y%m%d}-{record['commit']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
