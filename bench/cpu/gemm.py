"""Matrix products on the CPU, built by us, against numpy and torch in the same process.

    python bench/cpu/gemm.py                    one line of key=value per case and thread count
    python bench/cpu/gemm.py --threads 1,2      (default: 1 and all cores)
    python bench/cpu/gemm.py --write            also keeps the rows under bench/results/

Every process measures one case with one count of threads: 2 warm-up rounds, then rounds for
about a second in which each contender runs once, in an order that turns. A row holds medians
over PROCESSES processes and the spread of ours. Variables that hold a rival back are unset;
`blas` is the kernel that numpy's OpenBLAS chose by itself. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs_cpu"
PROCESSES, WARM, SECONDS = 3, 2, 1.0
HOLDS_BACK = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A program with its constants; ``flops`` of one run."""

    name: str
    program: str
    constants: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    flops: float = 0.0

    def sized(self, threads: int) -> dict[str, Any]:
        """The constants for a count of threads: each core gets whole blocks of rows."""
        out = {**self.constants, "CORES": threads}
        if "STRIPS" in out:
            blocks = -(-out["M"] // (14 * out["STRIPS"]))
            out["STRIPS"] = -(-out["M"] // (14 * -(-blocks // threads) * threads))
        return out


def f32(m: int, n: int, k: int, kc: int, strips: int) -> Case:
    sizes = {"M": m, "N": n, "K": k, "KC": kc, "STRIPS": strips}
    return Case(f"f32_{m}x{n}x{k}", "gemm_avx512", sizes, 2.0 * m * n * k)


CASES = (
    f32(512, 512, 512, 512, 37),
    f32(1024, 1024, 1024, 1024, 5),
    f32(2048, 2048, 2048, 1024, 7),
    f32(1000, 1111, 1222, 611, 6),
    Case("bf16_1120x1024x1024", "gemm_bf16", {"M": 1120, "N": 1024, "K": 1024, "STRIPS": 10},
         2.0 * 1120 * 2**20),
    Case("u8i8_1120x1024x1024", "gemm_int8", {"M": 1120, "N": 1024, "K": 1024, "STRIPS": 10},
         2.0 * 1120 * 2**20),
    Case("gemv_bf16_4096x4096", "gemv", {"N": 4096, "K": 4096}, 2.0 * 2**24),
    Case("bmm_gelu_8x448x512x512", "bmm_gelu", {"B": 8, "M": 448, "N": 512, "K": 512},
         2.0 * 8 * 448 * 2**18),
    Case("conv3x3_56x56x64x64", "conv3x3", {"H": 56, "W": 56, "C": 64, "F": 64},
         2.0 * 56 * 56 * 64 * 64 * 9),
)


def rivals(case: Case, t: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """numpy and torch on the same inputs; what they lack is left out."""
    import numpy as np
    import torch
    from torch.nn.functional import conv2d, gelu

    match case.program:
        case "gemm_avx512":
            a, b = t["a"].numpy(), t["b"].numpy()
            out = np.empty((a.shape[0], b.shape[1]), np.float32)
            place = torch.empty(out.shape)
            return {
                "numpy": lambda: np.matmul(a, b, out=out),
                "torch": lambda: torch.matmul(t["a"], t["b"], out=place),
            }
        case "gemm_bf16":
            return {"torch": lambda: t["a"] @ t["b"]}
        case "gemm_int8":
            low = (t["a"].short() - 128).to(torch.int8)  # torch multiplies signed bytes
            return {"torch": lambda: torch._int_mm(low, t["b"])}
        case "gemv":
            thin = t["x"].bfloat16()
            wide = t["w"].float().numpy()
            return {"torch": lambda: t["w"] @ thin, "numpy": lambda: wide @ t["x"].numpy()}
        case "bmm_gelu":
            return {"torch": lambda: gelu(t["x"] @ t["weight"] + t["bias"])}
    image = t["x"].permute(2, 0, 1)[None].contiguous(memory_format=torch.channels_last)
    kernel = t["weight"].reshape(3, 3, case.constants["C"], -1).permute(3, 2, 0, 1)
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    return {"torch": lambda: conv2d(image, kernel, padding=1)}


def drawn(argument: Any) -> Any:
    import torch

    from tilefoundry.ops.base import torch_dtype

    dtype = torch_dtype(argument.dtype)
    if dtype.is_floating_point:
        return torch.randn(argument.shape).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, argument.shape, dtype=dtype)


def one(name: str, threads: int) -> dict[str, Any]:
    """Measures one case in this process: median seconds of each contender."""
    import torch

    from tilefoundry.build import build
    from tilefoundry.build.call import Compiled
    from tilefoundry.lang.load import load_source
    from tilefoundry.ops.base import torch_dtype

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    case = next(c for c in CASES if c.name == name)
    source = load_source(str(PROGRAMS / f"{case.program}.py"), None, case.sized(threads))
    built = build(source)
    takes = [a for a in built.source.arguments if a.role != "out"]
    tensors = {a.name: drawn(a) for a in takes}
    outs = [torch.empty(a.shape, dtype=torch_dtype(a.dtype))
            for a in built.source.arguments if a.role == "out"]  # fmt: skip
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: tensors[a.name] for a in takes if a.role == "weight"}
    given = [tensors[a.name] for a in takes if a.role == "in"]
    contenders = {"ours": lambda: kernel.into(outs, *given), **rivals(case, tensors)}
    times: dict[str, list[float]] = {c: [] for c in contenders}
    order, round, began = list(contenders), 0, time.perf_counter()
    while round < WARM + 5 or (time.perf_counter() - began < SECONDS * len(order)):
        for c in order[round % len(order) :] + order[: round % len(order)]:
            start = time.perf_counter()
            contenders[c]()
            if round >= WARM:
                times[c].append(time.perf_counter() - start)
        round += 1
    return {"blas": blas(), "seconds": {c: median(x) for c, x in times.items()}}


def blas() -> str:
    """The kernel that the OpenBLAS inside numpy chose."""
    import numpy

    for path in (Path(numpy.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        get = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_corename64_", None)
        if get is not None:
            get.restype = ctypes.c_char_p
            return get().decode()
    return "unknown"


def processes(name: str, threads: int) -> list[dict[str, Any]]:
    env = {k: v for k, v in os.environ.items() if k not in HOLDS_BACK}
    env |= {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
    env |= {n: str(threads) for n in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    found: list[dict[str, Any]] = []
    for _ in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, str(threads)],
            env=env, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def measure(case: Case, threads: int) -> dict[str, Any]:
    """Gflop/s of each contender, ours over the best rival, and the spread of ours."""
    found = processes(case.name, threads)

    def speeds(runs: list[dict[str, Any]], contender: str) -> list[float]:
        return [case.flops / r["seconds"][contender] / 1e9 for r in runs]

    row: dict[str, Any] = {"case": case.name, "threads": threads, "blas": found[0]["blas"]}
    gflops = {c: median(speeds(found, c)) for c in found[0]["seconds"]}
    row |= {c: round(x, 1) for c, x in gflops.items()}
    best = max((x, c) for c, x in gflops.items() if c in ("numpy", "torch"))
    row |= {"best": best[1], "ratio": round(gflops["ours"] / best[0], 3)}
    ours = speeds(found, "ours")
    row["spread"] = round((max(ours) - min(ours)) / gflops["ours"], 3)
    return row


def keep(rows: list[dict[str, Any]]) -> None:
    import numpy
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
        "numpy": numpy.__version__,
        "torch": torch.__version__,
        "units": "Gflop/s (integer operations for u8i8)",
        "rows": rows,
    }
    path = REPOSITORY / "bench" / "results" / f"cpu-gemm-{now:%Y%m%d}-{record['commit']}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


def main() -> None:
    parser = argparse.ArgumentParser(description="Matrix products on the CPU.")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]))))
        return
    rows: list[dict[str, Any]] = []
    for threads in dict.fromkeys(int(t) for t in given.threads.split(",")):
        for case in CASES:
            if not given.cases or case.name in given.cases.split(","):
                rows.append(measure(case, threads))
                print(" ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
    if given.write:
        keep(rows)


if __name__ == "__main__":
    main()
