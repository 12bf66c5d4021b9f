"""Matrix products on the CPU, built by us, against numpy and torch.

    python bench/cpu/gemm.py                    one line of key=value per case and thread count
    python bench/cpu/gemm.py --threads 1,2      (default: 1 and all cores)
    python bench/cpu/gemm.py --write [DIR]      also keeps the rows, under bench/results/ or DIR
    python bench/cpu/gemm.py --write --add      measures only the rows that this commit's file
                                                lacks: a run in parts (`--cases`)

Each contender is a process of its own, so that no one's waiting threads take another's cores and
no one's affinity is another's: OMP_PROC_BIND, say, binds the thread that loads OpenMP, and
OpenBLAS's threads, made later, would share its core. They take turns, the others asleep: a turn
is a warm-up call and calls for TURN seconds, `--cycles` turns each, in an order that turns,
`--sets` times with new processes. A row holds the median speed of each and `ratio`, the median
over the cycles of ours to the best rival's in the same cycle; `spread` is the distance of its
quartiles.

Variables that hold a rival back are unset. `blas`: the kernel that numpy's OpenBLAS chose and the
threads it has; `kernel`: what torch says that it called; `cpus`: processor time by time. A rival
called torch_avx512 is torch with oneDNN kept to the instructions of ours, where torch alone
would take AMX. `target`: what ours is compiled for, the first of a case's targets whose
instructions are all here; cases without one are left out.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from machine import fitting

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs_cpu"
RESULTS = REPOSITORY / "bench" / "results"
TURN = 0.1
PAUSE = 0.2
"""Seconds until the threads of the one before sleep: OpenBLAS's wait for up to 2^28 clocks."""
OPENMP = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
"""Threads each on a core; not for OpenBLAS, whose threads are not OpenMP's."""
WIDE = ("intel.xeon_amx", "amd.epyc_avx512", "amd.epyc_zen4")
"""Targets with AVX-512, of most cores and instructions first."""
TILES = ("intel.xeon_amx",)


@dataclass(frozen=True)
class Case:
    """A program with its constants, and by counts of threads those that differ from that count
    on; ``flops`` of one run; ``isa`` what torch_avx512 may use; ``targets`` that have the
    program's instructions."""

    name: str
    program: str
    flops: float
    constants: dict[str, Any]
    several: dict[int, dict[str, Any]] = field(default_factory=lambda: dict[int, dict[str, Any]]())
    rivals: tuple[str, ...] = ("torch",)
    isa: str = ""
    targets: tuple[str, ...] = WIDE

    def target(self, threads: int) -> str | None:
        """The target that is here and has as many cores, if any."""
        return fitting(self.targets, threads)

    def sized(self, threads: int) -> dict[str, Any]:
        """The constants for a count of threads: cores are a grid of ROWS by the rest, or a row."""
        out = {**self.constants, "CPU": self.target(threads)}
        for least in sorted(self.several):
            out |= self.several[least] if least <= threads else {}
        rows = out.pop("ROWS", 1)
        if "NC" not in out:
            return {**out, "CORES": threads}
        return {**out, "CM": rows, "CN": threads // rows}


def product(
    kind: str, program: str, m: int, n: int, k: int, *, rivals: tuple[str, ...] = ("torch",),
    isa: str = "", several: dict[int, dict[str, Any]] | None = None,
    targets: tuple[str, ...] = WIDE, **constants: Any,
) -> Case:  # fmt: skip
    """A product of M x K by K x N."""
    sizes = {"M": m, "N": n, "K": k, **constants}
    name = f"{kind}_{m}x{n}x{k}"
    return Case(name, program, 2.0 * m * n * k, sizes, several or {}, rivals, isa, targets)


def f32(m: int, n: int, k: int, several: dict[int, dict[str, Any]], **blocks: Any) -> Case:
    rivals = ("numpy", "torch")
    return product("f32", "gemm_avx512", m, n, k, rivals=rivals, several=several, isa="", **blocks)


AVX512 = ("torch_avx512",)
CASES = (
    f32(512, 512, 512, {16: {"MR": 14, "NR": 32, "NC": 32, "PACKED": True}},
        KC=512, NC=256, PACKED=False),
    f32(1024, 1024, 1024, {16: {"NC": 64}}, KC=1024, NC=256),
    f32(2048, 2048, 2048, {2: {"KC": 2048, "NC": 128}, 16: {"KC": 2048, "NC": 64}},
        KC=512, NC=512),
    f32(1000, 1111, 1222, {16: {"MR": 8, "NR": 48, "NC": 144, "ROWS": 2}}, KC=1222, NC=192),
    product("bf16", "gemm_bf16", 1120, 1024, 1024, rivals=AVX512, isa="AVX512_CORE_BF16", NC=512,
            several={16: {"NC": 128, "ROWS": 2}}),
    product("u8i8", "gemm_int8", 1120, 1024, 1024, rivals=AVX512, isa="AVX512_CORE_VNNI",
            NC=512, several={16: {"NC": 128, "ROWS": 2}}),
    product("bf16_amx", "gemm_amx", 1024, 1024, 1024, targets=TILES, KC=1024, NC=512,
            several={16: {"NC": 256, "ROWS": 4}}),
    product("bf16_amx", "gemm_amx", 2048, 2048, 2048, targets=TILES, KC=2048, NC=256,
            several={16: {"ROWS": 4}}),
    product("u8i8_amx", "gemm_amx", 1024, 1024, 1024, targets=TILES, DTYPE="u8", KC=1024,
            NC=1024, several={2: {"NC": 512}, 16: {"NC": 256, "ROWS": 4}}),
    product("u8i8_amx", "gemm_amx", 2048, 2048, 2048, targets=TILES, DTYPE="u8", KC=2048,
            NC=512, several={16: {"ROWS": 4}}),
    Case("gemv_bf16_4096x4096", "gemv", 2.0 * 2**24, {"N": 4096, "K": 4096},
         rivals=("numpy", "torch")),
    Case("bmm_gelu_8x448x512x512", "bmm_gelu", 2.0 * 8 * 448 * 2**18,
         {"B": 8, "M": 448, "N": 512, "K": 512, "BLOCK": 256}),
    Case("conv3x3_56x56x64x64", "conv3x3", 2.0 * 56 * 56 * 64 * 64 * 9,
         {"H": 56, "W": 56, "C": 64, "F": 64}),
)  # fmt: skip


# One contender, in its process


def rival(case: Case, by: str, t: dict[str, Any]) -> Callable[[], Any]:
    """What numpy or torch does with the same inputs."""
    import numpy as np
    import torch
    from torch.nn.functional import conv2d, gelu

    match case.program:
        case "gemm_avx512":
            if by == "numpy":
                a, b = t["a"].numpy(), t["b"].numpy()
                out = np.empty((a.shape[0], b.shape[1]), np.float32)
                return lambda: np.matmul(a, b, out=out)
            place = torch.empty(t["a"].shape[0], t["b"].shape[1])
            return lambda: torch.matmul(t["a"], t["b"], out=place)
        case "gemm_bf16" | "gemm_int8" | "gemm_amx":
            if t["b"].dtype is torch.int8:
                low = (t["a"].short() - 128).to(torch.int8)  # torch multiplies signed bytes
                return lambda: torch._int_mm(low, t["b"])  # type: ignore[reportPrivateImportUsage]
            place = torch.empty(t["a"].shape[0], t["b"].shape[1], dtype=torch.bfloat16)
            return lambda: torch.matmul(t["a"], t["b"], out=place)
        case "gemv":
            if by == "numpy":
                wide, x = t["w"].float().numpy(), t["x"].numpy()
                return lambda: wide @ x
            thin = t["x"].bfloat16()
            return lambda: t["w"] @ thin
        case "bmm_gelu":
            return lambda: gelu(t["x"] @ t["weight"] + t["bias"])
    image = t["x"].permute(2, 0, 1)[None].contiguous(memory_format=torch.channels_last)
    kernel = t["weight"].reshape(3, 3, case.constants["C"], -1).permute(3, 2, 0, 1)
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    return lambda: conv2d(image, kernel, padding=1)


def drawn(argument: Any) -> Any:
    import torch

    from tilefoundry.ops.base import torch_dtype

    dtype = torch_dtype(argument.dtype)
    if dtype.is_floating_point:
        return torch.randn(argument.shape).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, argument.shape, dtype=dtype)


def contender(case: Case, by: str, threads: int) -> Callable[[], Any]:
    """One run of ``by`` on tensors that are the same in every process."""
    import torch

    from tilefoundry.build import build
    from tilefoundry.build.call import Compiled
    from tilefoundry.lang.load import load_source

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    source = load_source(str(PROGRAMS / f"{case.program}.py"), None, case.sized(threads))
    entry = source.module.funcs[source.module.entry]
    tensors = {p.name: drawn(p.tensor) for p in entry.params}
    if by != "ours":
        return rival(case, by, tensors)
    kernel = Compiled(build(source), threads)
    kernel.weights = {n: tensors[n] for n in entry.weights}
    given = [x for n, x in tensors.items() if n not in entry.weights]
    outs = kernel(*given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    return lambda: kernel.into(outs, *given)


def serve(name: str, by: str, threads: int) -> None:
    """After one line the first call, then a turn for each line that is read: seconds of a call,
    and processor time by time. One thread runs on the first processor, whoever's it is."""
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import torch  # noqa: F401

    import tilefoundry.build  # noqa: F401

    sys.stdin.readline()
    call = contender(next(c for c in CASES if c.name == name), by, threads)
    call()
    print(json.dumps(blas() if by == "numpy" else ""), flush=True)
    for _ in sys.stdin:
        call()
        times: list[float] = []
        began, used = time.perf_counter(), time.process_time()
        while len(times) < 2 or time.perf_counter() - began < TURN:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        share = (time.process_time() - used) / (time.perf_counter() - began)
        print(json.dumps([median(times), share]), flush=True)


def blas() -> str:
    """The kernel that the OpenBLAS inside numpy chose, and its threads."""
    import numpy

    for path in (Path(numpy.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        name = getattr(library, "scipy_openblas_get_corename64_", None)
        count = getattr(library, "scipy_openblas_get_num_threads64_", None)
        if name is not None and count is not None:
            name.restype = ctypes.c_char_p
            return f"{name().decode()}/{count()}"
    return "unknown"


# The parent


def environment(case: Case, by: str, threads: int) -> dict[str, str]:
    """What a contender's process finds: nothing that holds it back, and its threads."""
    ours = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    env |= {n: str(threads) for n in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if by != "numpy":
        env |= OPENMP
    if by == "torch_avx512":
        env["ONEDNN_MAX_CPU_ISA"] = case.isa
    return env


def chosen(case: Case, by: str, threads: int) -> str:
    """The kernel that torch says it called."""
    env = environment(case, by, threads) | {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--serve", case.name, by, str(threads)],
        env=env, input="\n", stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = ""
    for line in done.stdout.splitlines():
        words = line.split(",")
        if line.startswith("onednn_verbose") and len(words) > 6 and words[3] == "exec":
            found = f"oneDNN {words[6] or words[5]}"
        elif line.startswith("MKL_VERBOSE") and "GEM" in line:
            found = f"MKL {line.split()[1].partition('(')[0]}"
    return found or "torch's own"


def turns(case: Case, contenders: list[str], threads: int, cycles: int) -> Iterator[dict[str, Any]]:
    """What each contender said of a turn, cycle by cycle, and of itself at the start."""
    servers: dict[str, subprocess.Popen[str]] = {}

    def asked(c: str) -> Any:
        servers[c].stdin.write("\n")  # type: ignore[union-attr]
        servers[c].stdin.flush()  # type: ignore[union-attr]
        line = servers[c].stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{c} ended in {case.name} on {threads} threads: see above")
        return json.loads(line)

    try:
        for c in contenders:
            servers[c] = subprocess.Popen(
                [sys.executable, __file__, "--serve", case.name, c, str(threads)],
                env=environment(case, c, threads), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        yield {c: asked(c) for c in contenders}
        for cycle in range(cycles):
            turn: dict[str, Any] = {}
            first = cycle % len(contenders)
            for c in contenders[first:] + contenders[:first]:
                time.sleep(PAUSE)
                turn[c] = asked(c)
            yield turn
    finally:
        for server in servers.values():
            server.stdin.close()  # type: ignore[union-attr]
            server.wait()


def measure(case: Case, threads: int, sets: int, cycles: int) -> dict[str, Any]:
    """Gflop/s of each contender, and ours over the best rival."""
    contenders = ["ours", *case.rivals]
    taken: list[dict[str, Any]] = []
    words: dict[str, Any] = {}
    for _ in range(sets):
        words, *more = turns(case, contenders, threads, cycles)
        taken += more
    now = datetime.now(UTC).isoformat(timespec="seconds")
    row: dict[str, Any] = {"case": case.name, "threads": threads}
    row |= {"target": case.target(threads), "date": now}
    row |= {"blas": words["numpy"]} if "numpy" in words else {}
    torch = next((c for c in case.rivals if c.startswith("torch")), None)
    row |= {"kernel": chosen(case, torch, threads)} if torch else {}
    speed = {c: case.flops / median(t[c][0] for t in taken) / 1e9 for c in contenders}
    row |= {c: round(x, 1) for c, x in speed.items()}
    best = max(case.rivals, key=lambda c: speed[c])
    ratios = sorted(t[best][0] / t["ours"][0] for t in taken)
    quarters = quantiles(ratios, n=4)
    row |= {"best": best, "ratio": round(median(ratios), 3)}
    row["spread"] = round(quarters[2] - quarters[0], 3)
    row["cpus"] = {c: round(median(t[c][1] for t in taken), 2) for c in contenders}
    return row


def record(folder: Path, add: bool) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """Where the rows are kept, what is said of them, and those that are there already where rows
    are to be added: of the same commit, machine and versions."""
    import numpy
    import torch

    from tilefoundry.build.compiler import compiler
    from tilefoundry.cli.doctor import processor

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    now = datetime.now(UTC)
    said: dict[str, Any] = {
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
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"cpu-gemm-{now:%Y%m%d}-{said['commit']}.json"
    if not add or not path.exists():
        return path, said, []
    before = json.loads(path.read_text(encoding="utf-8"))
    rows = before.pop("rows")
    other = [k for k in said if k != "date" and said[k] != before.get(k)]
    if other:
        raise SystemExit(f"{path} was measured with another {', '.join(other)}: no row is added")
    return path, before, rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Matrix products on the CPU.")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--sets", type=int, default=2, help="sets of new processes")
    parser.add_argument("--cycles", type=int, default=9, help="turns of each in a set")
    parser.add_argument("--write", nargs="?", type=Path, const=RESULTS, help="keep the rows")
    parser.add_argument("--add", action="store_true", help="keep this commit's rows, add others")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        name, by, threads = given.serve
        serve(name, by, int(threads))
        return
    wanted = given.cases.split(",") if given.cases else [c.name for c in CASES]
    cases = [c for c in CASES if c.name in wanted]
    path, said, rows = record(given.write, given.add) if given.write else (None, {}, [])
    there = {(row["case"], row["threads"]) for row in rows}
    for threads in dict.fromkeys(int(t) for t in given.threads.split(",")):
        for case in cases:
            if (case.name, threads) in there or not case.target(threads):
                continue
            rows.append(measure(case, threads, given.sets, given.cycles))
            print(" ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
            if path is not None:  # row by row: what a time limit cuts off is the rest alone
                text = json.dumps({**said, "rows": rows}, indent=2) + "\n"
                path.write_text(text, encoding="utf-8")
    if path is not None:
        print(path)


if __name__ == "__main__":
    main()
