"""GEMM with bf16 operands by Intel AMX, built here, measured against torch on a machine that
has AMX (the host of an H200).

    python bench/cpu/amx.py make DIR [1,16] compiles the programs for those counts of threads,
                                            and a manifest, into DIR
    python bench/cpu/amx.py run DIR         needs torch and ctypes only; one line per case, and
                                            DIR/results.json

First the small program's bits are compared with those of the instruction's model. Then each
case: 2 warm-up rounds, rounds in which both run once, medians. Ours writes f32, torch
(oneDNN) bf16 from the same operands. Run with OMP_PROC_BIND=close OMP_PLACES=cores.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

PROGRAM = Path(__file__).parents[2] / "tests" / "programs_cpu" / "gemm_amx.py"
WARM, FLOPS = 2, 2e11
SIZES = {1024: (1024, 512), 2048: (2048, 256), 4096: (4096, 128)}
"""Size: blocks along k and n that stay in the second cache."""
GRIDS = {1: (1, 1), 2: (2, 1), 16: (4, 4)}
"""Threads: cores along m and n."""
MODEL = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-DTF_MODEL")


def make(folder: Path, threads: str = "1,16") -> None:
    """The libraries, and for each its entry, workspace and arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: list[dict[str, Any]] = [
        _compiled(folder, "small", {}),
        _compiled(folder, "small_model", {}, MODEL),
    ]
    for n, (kc, nc) in SIZES.items():
        for count in map(int, threads.split(",")):
            rows, columns = GRIDS[count]
            consts = {"M": n, "N": n, "K": n, "KC": kc, "NC": min(nc, n // columns)}
            made = _compiled(folder, f"{n}_{count}", {**consts, "CM": rows, "CN": columns})
            cases.append({**made, "size": n, "threads": count, "constants": consts})
    (folder / "manifest.json").write_text(json.dumps(cases, indent=1), encoding="utf-8")


def _compiled(
    folder: Path, name: str, consts: dict[str, Any], flags: tuple[str, ...] = ()
) -> dict[str, Any]:
    from dataclasses import replace

    from tilefoundry.build.compiler import compiled
    from tilefoundry.emit import emit
    from tilefoundry.lang.load import load_source
    from tilefoundry.lower.finalize import finalize

    program, _ = finalize(load_source(str(PROGRAM), None, consts))
    source = emit(program)
    source = replace(source, flags=flags) if flags else source
    shutil.copy(compiled(source).library, folder / f"{name}.so")
    arguments = [(str(a.dtype), list(a.shape), a.role) for a in source.arguments]
    return {"name": name, "entry": source.entry, "work": source.workspace, "arguments": arguments}


class Kernel:
    """A library with tensors of its own."""

    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        import torch

        dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
        self.entry = getattr(ctypes.CDLL(str(folder / f"{case['name']}.so")), case["entry"])
        pointers = [ctypes.c_void_p] * (len(case["arguments"]) + 1)
        self.entry.argtypes = [*pointers, ctypes.c_int]
        stream = torch.Generator().manual_seed(1)
        self.tensors = [
            torch.zeros(shape, dtype=dtypes[d]) if role == "out"
            else torch.randn(shape, generator=stream).to(dtypes[d])
            for d, shape, role in case["arguments"]
        ]  # fmt: skip
        self.work = torch.zeros(case["work"] + 64, dtype=torch.uint8)

    def __call__(self, threads: int) -> None:
        at = (self.work.data_ptr() + 63) // 64 * 64
        assert self.entry(*(t.data_ptr() for t in self.tensors), at, threads) == 0


def run(folder: Path) -> None:
    import torch

    cases = {c["name"]: c for c in json.loads((folder / "manifest.json").read_text())}
    real, model = (Kernel(folder, cases[n]) for n in ("small", "small_model"))
    real(2), model(2)
    same = torch.equal(real.tensors[2], model.tensors[2])
    print(f"model bits_equal={same}", flush=True)
    rows: list[dict[str, Any]] = []
    for case in cases.values():
        if "size" in case:
            rows.append(_measured(Kernel(folder, case), case))
            print(" ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
    record = {"torch": torch.__version__, "model_bits_equal": same, "rows": rows}
    (folder / "results.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _measured(kernel: Kernel, case: dict[str, Any]) -> dict[str, Any]:
    import torch

    n, threads = case["size"], case["threads"]
    torch.set_num_threads(threads)
    a, b, c = kernel.tensors
    out = torch.empty(n, n, dtype=a.dtype)
    kernel(threads)
    error = float((c - a.float() @ b.float()).abs().max())
    contenders: dict[str, Callable[[], Any]] = {
        "ours": lambda: kernel(threads),
        "torch": lambda: torch.matmul(a, b, out=out),
    }
    times: dict[str, list[float]] = {x: [] for x in contenders}
    for turn in range(WARM + max(5, min(60, int(FLOPS * threads / (2 * n**3))))):
        for name, f in contenders.items():
            start = time.perf_counter()
            f()
            if turn >= WARM:
                times[name].append(time.perf_counter() - start)
    speed = {x: 2 * n**3 / median(t) / 1e9 for x, t in times.items()}
    return {
        "size": n, "threads": threads, "ours": round(speed["ours"], 1),
        "torch": round(speed["torch"], 1), "ratio": round(speed["ours"] / speed["torch"], 3),
        "error": error,
    }  # fmt: skip


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
