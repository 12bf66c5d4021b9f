"""Memory-bound programs on the CPU, built by us, against numpy, torch and what memory gives.

    python bench/cpu/memory.py                   one line of key=value per case and thread count
    python bench/cpu/memory.py --threads 1,2     (default: 1 and all cores)
    python bench/cpu/memory.py --write           also keeps the rows under bench/results/
    python bench/cpu/memory.py --const R=4       programs with other constants than TUNED's
    python bench/cpu/memory.py --write --merge FILE   with the other rows of a result of this
                                                 commit and machine, each with its own date

Every process measures one case with one count of threads: tensors that move twice as many bytes
as the last cache holds, each beginning with a page, 2 warm-up rounds, then rounds for SECONDS in
which each contender runs once, in a random order. A time is the median of its process; a row
holds the median over PROCESSES processes and their spread. Copies and reads are of the very
tensors of the program, in the same rounds. ``copy`` is the fastest copy of a library: memcpy,
torch's, numpy's. ``limit`` is the most that memory gave to anything that only moves bytes
(copies.c, too): by vectors, by vectors stored past the caches, in order or some pages side by
side; for programs that write next to nothing, the fastest read, since a core reads less than it
copies: its outstanding reads are bounded, its stores past the caches are not. ``of_copy`` and
``of_limit`` are the shares of them that ours reaches. torch runs eagerly and compiled
(torch.compile), its allocator is kept from returning memory to the system. A program is compiled
with the constants of its case, or those of TUNED for the machine. Rows have 4096 elements, or as
many as the case's name says. Run it on a quiet machine.

Why rows stay below the limit. A Xeon (2 MiB of second cache, 48 KiB of first) copies fastest from
and to several pages side by side. Kernels in C with intrinsics gave these shares of copy_pages: a
copy that also loads one, two, three lines of the second cache for each it copies, 0.94, 0.87, 0.81;
stores one to the first cache, 0.94; has 8, 24 more instructions that do nothing, 0.97, 0.89.
LayerNorm reads a row of 16 KiB twice and two more for six of them, and finds a fifth of what it
reads again in the first cache: 2.2 lines for one, which gives it 1 to 3 % over the 2.5 of four rows
from end to end (weights kept there, too, by blocks of columns of more rows, give no more). In
softmax an instruction for each line costs 0.5 %: it had 0.99 without the powers. All lines are
asked for into the second cache a row ahead (of every second one it had 0.81 to 0.86, of a fourth of
each page 0.85, of none 0.81 to 0.83), and some lines ahead into the first, which gives it 3 to 5 %;
into the first alone they come slower. What made it slow by turns: stores at the place of a page
that is loaded next (an unaligned workspace), buffers of two cores in one page, and rows of cores
in turn, so that each core's prefetchers ask for rows of another.
A Zen 4 (1 MiB, 32 KiB; 512 bits in two halves) copies fastest in order, and what is read twice with
more than 16 KiB of other reads and writes between comes from the second cache: norms of short rows
go row by row. Where a chunk's stores past the caches come first, the loads behind them at the same
place of a page wait. On a Zen 3 with AVX2 stores past the caches to four pages side by side have a
quarter of the rate of those in order, and requests ahead slow plain copies.
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

from machine import fitting

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = REPOSITORY / "tests" / "programs_cpu"
COPIES = Path(__file__).parent / "copies.c"
SECONDS, ROUNDS, WARM, PROCESSES = 3.0, 5, 2, 3
"""Seconds of rounds, but ROUNDS at least."""
PAUSE = 0.01
"""Seconds before each call: idle threads of another library's pool spin no longer."""
UNIT, PAGE = 1 << 20, 4096
COLS = 4096
TUNED: dict[str, dict[str, dict[str, Any]]] = {
    "amd.epyc_zen4": {
        "rmsnorm_f32": {"R": 4, "VECS": 1},
        "rmsnorm_f32_512": {"program": "rmsnorm_rows", "VECS": 4},
        "layernorm_f32": {"R": 2, "VECS": 4},
        "layernorm_f32_512": {"program": "layernorm_rows", "VECS": 1},
        "softmax_f32": {"STREAMS": 1, "VECS": 1, "NEAR": 0},
        "softmax_bf16": {"STREAMS": 1, "VECS": 2, "NEAR": 0},
        "total_f32": {"STREAMS": 1, "VECS": 1},
        "gemv_bf16": {"R": 2},
    },
    "amd.epyc_avx2": {
        "chain_f32": {"STREAMS": 1, "VECS": 4, "AHEAD": 256},
        "chain_f16": {"STREAMS": 1, "AHEAD": 512},
        "rmsnorm_f32": {"R": 1},
        "rmsnorm_f32_512": {"program": "rmsnorm_rows"},
        "rmsnorm_bf16": {"R": 1},
        "layernorm_f32": {"program": "layernorm_flow", "VECS": 2},
        "layernorm_f32_512": {"program": "layernorm_rows", "VECS": 2},
        "layernorm_bf16": {"program": "layernorm_flow", "VECS": 2},
        "softmax_f32": {"STREAMS": 1, "VECS": 2, "NEAR": 0},
        "softmax_bf16": {"STREAMS": 1, "VECS": 2, "NEAR": 0},
    },
}
"""Constants by target and case; ``program`` is another file of the same function."""
LIBRARIES = ("copy_library", "copy_torch", "copy_numpy")
APART = ("speeds", "constants", "date", "processes")
LEAST, LARGE = 1 << 29, 1 << 25
"""Bytes moved where the last cache is small; of a tensor that crosses memory, as weights do not."""
GRAIN = 1 << 16
"""Bytes that copies.c shares out."""
SIZES = ("N", "K", "ROWS", "COLS", "DTYPE", "CORES", "LANES")


@dataclass(frozen=True)
class Case:
    """A program and its constants; ``tensors`` of its main operand's size cross memory. ``vecs``
    is for vectors of 16 lanes: where they have 8, registers are half as many, too. Rows have
    ``cols`` elements."""

    program: str
    dtype: str
    tensors: int
    vecs: int = 4
    cols: int = COLS

    @property
    def name(self) -> str:
        return f"{self.program}_{self.dtype}" + (f"_{self.cols}" if self.cols != COLS else "")

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
            size = {"ROWS": count // self.cols, "COLS": self.cols}
        elif self.program == "gemv":
            size = {"N": count // self.cols, "K": self.cols}
        if self.program != "gemv":
            size["DTYPE"] = self.dtype
        return size


CASES = (
    Case("chain", "f32", 2),
    Case("chain", "f16", 2),
    Case("rmsnorm", "f32", 4, 2),
    Case("rmsnorm", "f32", 4, 2, 512),
    Case("rmsnorm", "bf16", 4, 2),
    Case("layernorm", "f32", 2, 2),
    Case("layernorm", "f32", 2, 2, 512),
    Case("layernorm", "bf16", 2, 2),
    Case("softmax", "f32", 2, 2),
    Case("softmax", "bf16", 2, 2),
    Case("total", "f32", 1),
    Case("activations", "f32", 4, 2),
    Case("gemv", "bf16", 1),
)


LANES = {
    "intel.xeon_amx": 16,
    "amd.epyc_avx512": 16,
    "amd.epyc_zen4": 16,
    "amd.epyc_avx2": 8,
    "x86_64.generic": 8,
}
"""f32 lanes of the widest vectors by target, the best first."""


def constants(case: Case, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """What the program is compiled with on this machine, and of which file it is."""
    where = fitting(LANES, threads)
    if where is None:
        sys.exit("no target of ours with AVX2 or AVX-512 fits this machine and as many threads")
    tuned = dict(TUNED.get(where, {}).get(case.name, {}))
    lanes = LANES[where]
    sized = case.sized(max(LEAST, 2 * last_cache()))
    fixed = {"CORES": threads, "LANES": lanes}
    if case.program == "gemv":
        fixed |= {"CPU": where, "R": lanes // 2}
    else:
        fixed |= {"TARGET": where, "VECS": case.vecs * lanes // 16}
    for word in given.const:
        name, value = word.split("=")
        if name in SIZES:
            sys.exit(f"{name} is of the case, not of its tuning")
        tuned[name] = int(value)
    return {"program": case.program, **sized, **fixed, **tuned}


def last_cache() -> int:
    """Bytes of the largest cache that the system reports."""
    from tilefoundry.targets.cpu.host.probe import caches

    return max((c.capacity for c in caches(min(os.sched_getaffinity(0))).values()), default=0)


def by_torch(case: Case, t: dict[str, Any]) -> Callable[[], Any]:
    """What torch computes of the same inputs."""
    import torch
    from torch.nn.functional import gelu, layer_norm, rms_norm, silu

    narrow: Any = t["x"].to(torch.bfloat16) if case.program == "gemv" else None

    def eager() -> Any:
        match case.program:
            case "chain":
                return (t["x"] * t["x"] + t["x"]) * t["x"]
            case "rmsnorm":
                added = t["h"] + t["mix"]
                return added, rms_norm(added, t["gamma"].shape, t["gamma"], 1e-5)
            case "layernorm":
                return layer_norm(t["x"], t["weight"].shape, t["weight"], t["bias"], 1e-5)
            case "softmax":
                return torch.softmax(t["x"], -1)
            case "total":
                return t["x"].sum()
            case "gemv":
                return torch.mv(t["w"], narrow)
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


def memory(pairs: list[tuple[Any, Any]], reads: bool, threads: int) -> dict[str, Callable[[], Any]]:
    """Copies of each second tensor to the first, or reads of it."""
    import numpy as np
    import torch

    from tilefoundry.build.compiler import compiler

    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/copies.so"
        line = [compiler()[0], "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"]
        subprocess.run([*line, "-o", made, str(COPIES)], check=True)
        library = ctypes.CDLL(made)

    def call(name: str) -> Callable[[], Any]:
        function = getattr(library, name)
        function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_int]
        function.restype = None
        given = [(y.data_ptr(), x.data_ptr(), x.nbytes, threads) for y, x in pairs]
        return lambda: [function(*each) for each in given]

    if reads:
        return {n: call(n) for n in ("read_stream", "read_pages")}
    arrays = [tuple(t.view(-1).view(torch.uint8).numpy() for t in pair) for pair in pairs]
    return {
        **{n: call(n) for n in ("copy_library", "copy_vectors", "copy_stream", "copy_pages")},
        "copy_torch": lambda: [y.copy_(x) for y, x in pairs],
        "copy_numpy": lambda: [np.copyto(y, x) for y, x in arrays],
    }


def paired(takes: list[Any], gives: list[Any]) -> list[tuple[Any, Any]]:
    """Each tensor with one of ``gives`` that is as large and no other's; with itself where
    nothing is given."""
    left = list(gives)
    pairs: list[tuple[Any, Any]] = []
    for x in (x for x in takes if x.nbytes >= LARGE):
        at = next((i for i, y in enumerate(left) if y.nbytes == x.nbytes), None)
        pairs.append((x if at is None else left.pop(at), x))
        if x.nbytes % GRAIN or (gives and at is None):
            sys.exit("a tensor has no counterpart, or its bytes are not shared out evenly")
    return pairs


def one(name: str, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Measures one case in this process."""
    import torch

    from tilefoundry.build import build
    from tilefoundry.build.call import Compiled
    from tilefoundry.lang.load import load_source
    from tilefoundry.ops.base import torch_dtype

    torch.set_num_threads(threads)
    case = next(c for c in CASES if c.name == name)
    consts = constants(case, threads, given)
    program = consts.pop("program")
    built = build(load_source(str(PROGRAMS / f"{program}.py"), None, consts))
    takes = [a for a in built.source.arguments if a.role != "out"]
    gives = [a for a in built.source.arguments if a.role == "out"]
    tensors = {a.name: paged(torch_dtype(a.dtype), a.shape) for a in takes}
    for x in tensors.values():
        x.normal_()
    outs = [paged(torch_dtype(a.dtype), a.shape) for a in gives]
    kernel = Compiled(built, threads)
    kernel.weights = {a.name: tensors[a.name] for a in takes if a.role == "weight"}
    inputs = [tensors[a.name] for a in takes if a.role == "in"]
    moved = sum(a.bytes for a in built.source.arguments)
    eager = by_torch(case, tensors)
    pairs = paired(list(tensors.values()), [] if case.reads else outs)
    copies = memory(pairs, case.reads, threads)
    copied = sum(x.nbytes if case.reads else y.nbytes + x.nbytes for y, x in pairs)
    contenders: dict[str, Callable[[], Any]] = {
        "ours": lambda: kernel.into(outs, *inputs),
        **copies,
        "torch": eager,
    }
    if (found := by_numpy(case, tensors)) is not None and threads == 1:
        contenders["numpy"] = found
    if not given.eager:
        try:
            compiled = torch.compile(eager)
            compiled()
            contenders["torch_compiled"] = compiled
        except Exception as error:  # no C++ compiler: the eager rival stands alone
            print(f"# torch.compile: {type(error).__name__}", file=sys.stderr)
    times: dict[str, list[float]] = {c: [] for c in contenders}
    order = list(contenders)
    turn, start, stream = 0, time.perf_counter(), Random(1)
    while turn < WARM + ROUNDS or time.perf_counter() - start < given.seconds:
        for c in stream.sample(order, len(order)):
            time.sleep(PAUSE)
            begin = time.perf_counter()
            contenders[c]()
            took = time.perf_counter() - begin
            if turn >= WARM:
                times[c].append(took)
        turn += 1
    speeds = {c: (copied if c in copies else moved) / median(t) / 1e9 for c, t in times.items()}
    return {"bytes": moved, "constants": {"program": program, **consts}, "speeds": speeds}


@dataclass(frozen=True)
class Row:
    """One case: GB/s of ours, of memory and of the fastest rival, and their quotients; no library
    only reads."""

    case: str
    threads: int
    target: str
    megabytes: float
    ours: float
    copy: float | None
    limit: float
    limit_by: str
    best: float
    rival: str
    of_copy: float | None
    of_limit: float
    over_best: float
    spread: float
    constants: dict[str, Any]
    speeds: dict[str, float]
    date: str
    processes: int

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
    options += [word for constant in given.const for word in ("--const", constant)]
    for _ in range(given.processes):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, str(threads), *options],
            env=env, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    moved = found[0]["bytes"]
    speeds = {c: [f["speeds"][c] for f in found] for c in found[0]["speeds"]}
    middle = {c: round(median(s), 2) for c, s in speeds.items()}

    def most(*kinds: str) -> str:
        return max((c for c in middle if c.startswith(kinds)), key=lambda c: middle[c])

    limit, rival, ours = most("copy", "read"), most("torch", "numpy"), middle["ours"]
    copy = max((middle[c] for c in LIBRARIES if c in middle), default=None)
    used = found[0]["constants"]
    return Row(
        case=name,
        threads=threads,
        target=used.get("TARGET") or used["CPU"],
        megabytes=round(moved / 1e6, 1),
        ours=ours,
        copy=copy,
        limit=middle[limit],
        limit_by=limit,
        best=middle[rival],
        rival=rival,
        of_copy=copy and round(ours / copy, 3),
        of_limit=round(ours / middle[limit], 3),
        over_best=round(ours / middle[rival], 3),
        spread=round((max(speeds["ours"]) - min(speeds["ours"])) / ours, 3),
        constants=used,
        speeds=middle,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        processes=given.processes,
    )


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
            "copy": "GB/s",
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
    parser.add_argument("--const", action="append", default=[], help="N=V, of the programs")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each row")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds in each")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--write", action="store_true", help="keep the result as JSON")
    parser.add_argument("--merge", default="", help="a result whose other rows are taken over")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]), given)))
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
