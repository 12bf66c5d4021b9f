"""Memory-bound programs on the CPU, built by us, against numpy, torch and what memory gives.

    python bench/cpu/memory.py                   one line of key=value per case and thread count
    python bench/cpu/memory.py --threads 1,2     (default: 1 and all cores)
    python bench/cpu/memory.py --write           also keeps the rows under bench/results/
    python bench/cpu/memory.py --write --merge FILE   with the other rows of a result of this
                                                 commit and machine, each with its own date

Every process measures one case with one count of threads: tensors that move twice as many bytes
as the last cache holds, each beginning with a page, 2 warm-up rounds, then rounds for SECONDS in
which each contender runs once, in a random order. A time is the median of its process; a row
holds the median over PROCESSES processes and their spread. ``limit`` is the most that memory
gave in the same rounds (copies.c): for programs that write, the fastest copy of as many bytes
(the library's memcpy, by vectors, by vectors stored past the caches; torch's and numpy's too);
for those that only read, the fastest read of as many, since a core reads less than it copies:
its outstanding reads are bounded, its stores past the caches are not. ``of_limit`` is the share
of it that ours reaches. torch runs eagerly and compiled (torch.compile), its allocator is kept
from returning memory to the system. Run it on a quiet machine.

Why rows stay below the limit, by kernels in C with intrinsics that read and write as the programs
do (Xeon with 2 MiB of second cache, 48 KiB of first; shares of copy_stream, 1 and 2 threads
within 0.03 of one another): a copy that also loads one, two, three lines of the second cache for
each it copies has 0.94, 0.87, 0.81; stores one to the first cache, 0.94; has 8, 24 more
instructions that do nothing, 0.97, 0.89. LayerNorm reads a row of 16 KiB twice and two more for
four of them: 2.5 lines for one. Softmax has 20 vector instructions a line: 0.87 to 0.93 by hand
as well, whether powers are kept, or taken against the maximum so far of each lane and
block (one reading). GEMV by hand has 0.90 of the fastest read with, 1.01 without widening bf16.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs_cpu"
COPIES = Path(__file__).parent / "copies.c"
SECONDS, ROUNDS, WARM, PROCESSES = 3.0, 5, 2, 3
"""Seconds of rounds, but ROUNDS at least."""
PAUSE = 0.01
"""Seconds before each call: idle threads of another library's pool spin no longer."""
COLS, UNIT, PAGE = 4096, 1 << 20, 4096
APART = ("speeds", "date", "processes")
LEAST = 1 << 29
"""Bytes moved where the last cache is small."""


@dataclass(frozen=True)
class Case:
    """A program and its constants; ``tensors`` of its main operand's size cross memory. ``vecs``
    is for vectors of 16 lanes: where they have 8, registers are half as many, too."""

    program: str
    dtype: str
    tensors: int
    vecs: int = 4

    @property
    def name(self) -> str:
        return f"{self.program}_{self.dtype}"

    @property
    def reads(self) -> bool:
        """It writes next to nothing."""
        return self.program in ("total", "gemv")

    def sized(self, bytes: int) -> dict[str, Any]:
        """Constants by which it moves at least ``bytes``."""
        width = 4 if self.dtype == "f32" else 2
        count = -(-bytes // (self.tensors * width * UNIT)) * UNIT
        size: dict[str, Any] = {"N": count}
        if self.program in ("rmsnorm", "layernorm", "softmax"):
            size = {"ROWS": count // COLS, "COLS": COLS}
        elif self.program == "gemv":
            size = {"N": count // COLS, "K": COLS}
        if self.program != "gemv":
            size["DTYPE"] = self.dtype
        return size


CASES = (
    Case("chain", "f32", 2),
    Case("chain", "f16", 2),
    Case("rmsnorm", "f32", 4),
    Case("rmsnorm", "bf16", 4),
    Case("layernorm", "f32", 2, 2),
    Case("layernorm", "bf16", 2, 2),
    Case("softmax", "f32", 2, 2),
    Case("softmax", "bf16", 2, 2),
    Case("total", "f32", 1),
    Case("activations", "f32", 4, 2),
    Case("gemv", "bf16", 1),
)


def target() -> tuple[str, int]:
    """The widest vectors that this machine has: target and f32 lanes."""
    from tilefoundry.build.machine import missing
    from tilefoundry.targets import load_target

    for name, lanes in (
        ("intel.xeon_amx", 16), ("amd.epyc_avx512", 16), ("x86_64.generic", 8),
    ):  # fmt: skip
        if not missing(load_target(name).capabilities):
            return name, lanes
    sys.exit("this machine has neither AVX-512 nor AVX2")


def last_cache() -> int:
    """Bytes of the largest cache that the system reports."""
    from tilefoundry.targets.cpu.host.probe import caches

    return max((c.capacity for c in caches(min(os.sched_getaffinity(0))).values()), default=0)


def by_torch(case: Case, t: dict[str, Any]) -> Callable[[], Any]:
    """What torch computes of the same inputs."""
    import torch
    from torch.nn.functional import gelu, layer_norm, rms_norm, silu

    if case.program == "gemv":
        x = t["x"].to(torch.bfloat16)

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
            case "gemv":
                return torch.mv(t["w"], x)
        a, b = t["x"], t["y"]
        more = a > b
        return silu(a) * gelu(b), torch.where(more, a.clamp(-0.5, 0.75), torch.tanh(b)), more

    return eager


def by_numpy(case: Case, t: dict[str, Any]) -> Callable[[], Any] | None:
    """What numpy computes of the same inputs; None for what it has no types or functions for."""
    import numpy as np

    if case.dtype != "f32" or case.program == "activations":
        return None
    a = {name: x.numpy() for name, x in t.items()}

    def normed(x: Any, mean: Any) -> Any:
        away = x - mean
        return away / np.sqrt(np.square(away).mean(-1, keepdims=True) + np.float32(1e-5))

    def run() -> Any:
        match case.program:
            case "chain":
                return (a["x"] * a["x"] + a["x"]) * a["x"]
            case "rmsnorm":
                added = a["h"] + a["mix"]
                return added, normed(added, np.float32(0)) * a["gamma"]
            case "layernorm":
                mean = a["x"].mean(-1, keepdims=True)
                return normed(a["x"], mean) * a["weight"] + a["bias"]
            case "softmax":
                powers = np.exp(a["x"] - a["x"].max(-1, keepdims=True))
                return powers / powers.sum(-1, keepdims=True)
        return a["x"].sum()

    return run


def paged(dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor of the type ``dtype`` that begins with a page of memory."""
    import torch

    bytes = prod(shape) * dtype.itemsize
    room = torch.empty(bytes + PAGE, dtype=torch.uint8)
    start = -room.data_ptr() % PAGE
    return room[start : start + bytes].view(dtype).view(shape)


def memory(bytes: int, threads: int, reads: bool) -> dict[str, Callable[[], Any]]:
    """Reads of ``bytes``, or copies that read and write as many in all."""
    import numpy as np
    import torch

    from tilefoundry.build.compiler import compiler

    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/copies.so"
        line = [compiler()[0], "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"]
        subprocess.run([*line, "-o", made, str(COPIES)], check=True)
        library = ctypes.CDLL(made)
    grain = (1 << 16) * threads
    each = -(-bytes // (1 if reads else 2) // grain) * grain
    held = [paged(torch.uint8, (each,)) for _ in range(1 if reads else 2)]
    at = [x.fill_(1).data_ptr() for x in held]

    def call(name: str) -> Callable[[], Any]:
        function = getattr(library, name)
        function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_int]
        function.restype = None
        return lambda: held and function(at[-1], at[0], each, threads)

    if reads:
        return {n: call(n) for n in ("read_vectors", "read_pages")}
    source, place = (x.view(torch.float32) for x in held)
    return {
        **{n: call(n) for n in ("copy_library", "copy_vectors", "copy_stream")},
        "copy_torch": lambda: place.copy_(source),
        "copy_numpy": lambda: np.copyto(place.numpy(), source.numpy()),
    }


def one(name: str, threads: int, seconds: float, compiles: bool) -> dict[str, Any]:
    """Measures one case in this process."""
    import torch

    from tilefoundry.build import build
    from tilefoundry.build.call import Compiled
    from tilefoundry.lang.load import load_source
    from tilefoundry.ops.base import torch_dtype

    torch.set_num_threads(threads)
    case = next(c for c in CASES if c.name == name)
    where, lanes = target()
    consts = {**case.sized(max(LEAST, 2 * last_cache())), "CORES": threads}
    if case.program == "gemv":
        consts |= {"CPU": where, "LANES": lanes, "R": lanes // 2}
    else:
        consts |= {"TARGET": where, "LANES": lanes,
                   "VECS": case.vecs * lanes // 16}  # fmt: skip
    built = build(load_source(str(PROGRAMS / f"{case.program}.py"), None, consts))
    takes = [a for a in built.source.arguments if a.role != "out"]
    gives = [a for a in built.source.arguments if a.role == "out"]
    tensors = {a.name: paged(torch_dtype(a.dtype), a.shape) for a in takes}
    for x in tensors.values():
        x.normal_()
    outs = [paged(torch_dtype(a.dtype), a.shape) for a in gives]
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: tensors[a.name] for a in takes if a.role == "weight"}
    given = [tensors[a.name] for a in takes if a.role == "in"]
    moved = sum(a.bytes for a in built.source.arguments)
    eager = by_torch(case, tensors)
    contenders: dict[str, Callable[[], Any]] = {
        "ours": lambda: kernel.into(outs, *given),
        **memory(moved, threads, case.reads),
        "torch": eager,
    }
    if (found := by_numpy(case, tensors)) is not None and threads == 1:
        contenders["numpy"] = found
    if compiles:
        try:
            compiled = torch.compile(eager)
            compiled()
            contenders["torch_compiled"] = compiled
        except Exception as error:  # no C++ compiler: the eager rival stands alone
            print(f"# torch.compile: {type(error).__name__}", file=sys.stderr)
    times: dict[str, list[float]] = {c: [] for c in contenders}
    order = list(contenders)
    turn, start, stream = 0, time.perf_counter(), Random(1)
    while turn < WARM + ROUNDS or time.perf_counter() - start < seconds:
        for c in stream.sample(order, len(order)):
            time.sleep(PAUSE)
            begin = time.perf_counter()
            contenders[c]()
            took = time.perf_counter() - begin
            if turn >= WARM:
                times[c].append(took)
        turn += 1
    return {"bytes": moved, "target": where, "seconds": {c: median(t) for c, t in times.items()}}


@dataclass(frozen=True)
class Row:
    """One case: GB/s of ours, of memory and of the fastest rival, and their quotients."""

    case: str
    threads: int
    target: str
    megabytes: float
    ours: float
    limit: float
    limit_by: str
    best: float
    rival: str
    of_limit: float
    over_best: float
    spread: float
    speeds: dict[str, float]
    date: str = ""
    processes: int = 0

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in asdict(self).items() if k not in APART)


def measure(name: str, threads: int, given: argparse.Namespace) -> Row:
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
    options = ["--seconds", str(given.seconds), *(["--eager"] if given.eager else [])]
    for _ in range(given.processes):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, str(threads), *options],
            env=env, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    moved = found[0]["bytes"]
    speeds = {c: [moved / f["seconds"][c] / 1e9 for f in found] for c in found[0]["seconds"]}
    middle = {c: round(median(s), 2) for c, s in speeds.items()}

    def most(*kinds: str) -> str:
        return max((c for c in middle if c.startswith(kinds)), key=lambda c: middle[c])

    limit, rival, ours = most("copy", "read"), most("torch", "numpy"), middle["ours"]
    spread = (max(speeds["ours"]) - min(speeds["ours"])) / ours
    return Row(
        name, threads, found[0]["target"], round(moved / 1e6, 1), ours,
        middle[limit], limit, middle[rival], rival, round(ours / middle[limit], 3),
        round(ours / middle[rival], 3), round(spread, 3), middle,
        datetime.now(UTC).isoformat(timespec="seconds"), given.processes,
    )  # fmt: skip


def keep(rows: list[Row], merge: str) -> None:
    """Writes a result; rows that ``merge`` alone has are taken over as they are."""
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
        "last_cache": last_cache(),
        "units": {
            "ours": "GB/s",
            "limit": "GB/s",
            "best": "GB/s",
            "speeds": "GB/s",
            "megabytes": "MB",
            "last_cache": "byte",
        },
        "rows": [asdict(row) for row in rows],
    }
    if merge:
        others = json.loads(Path(merge).read_text(encoding="utf-8"))
        for word in ("commit", "machine", "compiler", "python", "torch", "last_cache"):
            if others[word] != record[word]:
                sys.exit(f"{merge} is of another {word}: {others[word]}, not {record[word]}")
        mine = {(row.case, row.threads) for row in rows}
        kept = [r for r in others["rows"] if (r["case"], r["threads"]) not in mine]
        names = [c.name for c in CASES]
        record["rows"] = sorted(
            [*kept, *record["rows"]], key=lambda r: (r["threads"], names.index(r["case"]))
        )
    path = REPOSITORY / "bench" / "results" / f"cpu-memory-{now:%Y%m%d}-{record['commit']}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(path.relative_to(REPOSITORY))


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory-bound programs on the CPU.")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each row")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds in each")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    parser.add_argument("--merge", default="", help="a result whose other rows are taken over")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]), given.seconds, not given.eager)))
        return
    rows: list[Row] = []
    for threads in dict.fromkeys(int(t) for t in given.threads.split(",")):
        for case in CASES:
            if not given.cases or case.name in given.cases.split(","):
                rows.append(measure(case.name, threads, given))
                print(rows[-1], flush=True)
    if given.write:
        keep(rows, given.merge)


if __name__ == "__main__":
    main()
