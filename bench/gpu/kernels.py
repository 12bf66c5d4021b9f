"""Kernels built from the examples against torch on the same device, in the same run.

Protocols (named in each line): ``interleaved``: single launches of both in shuffled order,
median of the rounds; ``sustained``: each alone for ``--seconds``, in turn, mean of the repeats,
on a card whose clock the limit of power holds already and that has done the same for a while:
for a second after a pause, and for 0.1 s after each change of work, that limit is missed by a
tenth either way (H200, 700 W), so that shorter runs on a cooler card differ by 4 % from one
another, these by one (``spread``: of the repeats' ratios);
``graph``: as interleaved, a CUDA graph of ten launches each, for what takes less than 100 us.
Memory-bound rows have the share of a device copy's bandwidth measured in the same run (of a
gigabyte; ``of_same``: of one that moves as many bytes, timed in turn with the row), and the faster
of torch's eager and compiled kernels as their rival. Prints a line of ``key=value`` for
each row; ``--write FILE`` makes a JSON file with date, commit, driver and clocks.

    python bench/gpu/kernels.py [--write FILE] [--list] [--seconds S] [ROW or 'PATTERN*' ...]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tilefoundry.build import build, callable_of
from tilefoundry.lang.load import load_source
from tilefoundry.targets.cuda.host.state import state

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "gpu"
ROUNDS, WARM = 40, 5
LEAD_CYCLES = 200_000
REPEATS = 3
HEAT, SETTLE = 1.5, 0.15
"""Seconds of work before sustained runs, and before each of them."""
GRAPH, SHORT = 10, 100.0
HOST_CALLS = 200
COPY_BYTES = 1 << 30
WRONG = 0.02
"""Of the largest element: results of 16 and 8 bits differ by a third of that."""
BOTH = ("interleaved", "sustained")
Call = Callable[[], Any]
Rival = Callable[..., Tensor]


@dataclass(frozen=True)
class Row:
    """A program at a size. ``rival`` takes the program's tensors, inputs then weights;
    ``work`` gives FLOP (a product) or bytes; ``forms`` of the rival: eager, compiled."""

    program: str
    consts: dict[str, object]
    rival: Rival
    work: Callable[[list[Tensor]], float]
    unit: str = "gbps"
    forms: tuple[str, ...] = ("eager", "compiled")
    protocols: tuple[str, ...] = ("interleaved",)


def file_of(program: str) -> str:
    return str(PROGRAMS / f"{program}.py")


def compiled(program: str, consts: dict[str, object]) -> float:
    """Builds into the cache; seconds."""
    began = time.perf_counter()
    build(load_source(file_of(program), None, consts))
    return time.perf_counter() - began


def tensors(kernel: Any) -> tuple[list[Tensor], dict[str, Tensor], list[Tensor]]:
    """Inputs and weights of standard normal numbers, outputs of NaN or its bits."""
    inputs: list[Tensor] = []
    weights: dict[str, Tensor] = {}
    outputs: list[Tensor] = []
    for a in kernel.built.source.arguments:
        dtype = getattr(torch, a.dtype.torch)
        if a.role == "out":
            bits = torch.full((a.bytes,), 0xFF, dtype=torch.uint8, device="cuda")
            outputs.append(bits.view(dtype).reshape(a.shape))
            continue
        made = torch.randn(tuple(a.shape), device="cuda").to(dtype)
        if a.role == "weight":
            weights[a.name] = made
        else:
            inputs.append(made)
    return inputs, weights, outputs


# Rows


def product(x: list[Tensor]) -> float:
    """FLOP of a product (..., M, K) by one whose other extent is N."""
    a, b = x[0], x[1]
    n = b.numel() // (a.shape[-1] * (a.shape[0] if a.ndim == 3 else 1))
    return 2.0 * a.numel() * n


def through(x: list[Tensor]) -> float:
    """Bytes of the first tensor, read and written once."""
    return 2.0 * x[0].numel() * x[0].element_size()


def read(x: list[Tensor]) -> float:
    """Bytes of the inputs, read once."""
    return float(sum(t.numel() * t.element_size() for t in x))


def gemm(
    program: str, m: int, n: int, k: int, both: bool = True, transposed: bool = False,
    **more: object,
) -> Row:  # fmt: skip
    """``transposed``: b is stored (n, k)."""
    ours = {"M": m, "N": n, "K": k, **more}
    rival: Rival = (lambda a, b: torch.matmul(a, b.mT)) if transposed else torch.matmul
    return Row(program, ours, rival, product, "tflops", ("eager",),
               BOTH if both else ("interleaved",))  # fmt: skip


def scaled(a: Tensor, b: Tensor) -> Tensor:
    one = torch.ones((), device="cuda")
    return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)


def epilogue(a: Tensor, b: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.addmm(bias, a, b), approximate="tanh") + residual


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries at the end of the keys, which each sees up to its own place."""
    from torch.nn.attention.bias import causal_lower_right
    from torch.nn.functional import scaled_dot_product_attention

    share = q.shape[2] // k.shape[2]
    qt = q.transpose(1, 2)
    kt, vt = (x.transpose(1, 2).repeat_interleave(share, 1).contiguous() for x in (k, v))
    mask = causal_lower_right(q.shape[1], k.shape[1])
    return scaled_dot_product_attention(qt, kt, vt, attn_mask=mask).transpose(1, 2)


def pairs(x: list[Tensor]) -> float:
    q, k = x[0], x[1]
    seen = q.shape[1] * k.shape[1] - q.shape[1] * (q.shape[1] - 1) / 2
    return 4.0 * q.shape[0] * q.shape[2] * q.shape[3] * seen


def rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def chain(x: Tensor) -> Tensor:
    return (x * x + x) * x


def memory(program: str, rival: Rival, work: Any = through, **consts: object) -> Row:
    return Row(program, consts, rival, work)


ATTENTION = ("tflops", ("eager",))
FP8 = {"DTYPE": "fp8e4m3", "B_ROWS": "n"}
LONG = {"ROWS": 8192, "COLS": 16384}
ROWS: dict[str, Row] = {
    "gemm": gemm("gemm_halves", 8192, 17408, 5120),
    "gemm_post": gemm("gemm_optimal", 8192, 17408, 5120),
    "gemm_own_storer": gemm("gemm_own_storer", 8192, 17408, 5120),
    "gemm_pair": gemm("gemm_halves", 8192, 17408, 5120, PAIR=2, GROUP=8),
    "gemm_8192": gemm("gemm_halves", 8192, 8192, 8192),
    "gemm_4096": gemm("gemm_halves", 4096, 4096, 4096),
    "gemm_tall": gemm("gemm_halves", 16384, 4096, 4096),
    "gemm_deep": gemm("gemm_halves", 2048, 2048, 16384),
    "gemm_wide": gemm("gemm_halves", 4096, 11008, 4096),
    "gemm_t": gemm("gemm_halves", 8192, 17408, 5120, True, True, B_ROWS="n"),
    "gemm_8192_t": gemm("gemm_halves", 8192, 8192, 8192, True, True, B_ROWS="n"),
    "gemm_4096_t": gemm("gemm_halves", 4096, 4096, 4096, True, True, B_ROWS="n"),
    "gemm_tall_t": gemm("gemm_halves", 16384, 4096, 4096, True, True, B_ROWS="n"),
    "gemm_deep_t": gemm("gemm_halves", 2048, 2048, 16384, True, True, B_ROWS="n"),
    "gemm_wide_t": gemm("gemm_halves", 4096, 11008, 4096, True, True, B_ROWS="n"),
    "gemm_128": gemm("gemm_skinny", 128, 7168, 2048, False),
    "gemm_128_t": gemm("gemm_skinny", 128, 7168, 2048, False, True, B_ROWS="n", BN=112, STAGES=9),
    "gemm_64": gemm("gemm_skinny", 64, 4096, 4096, False, BN=32, BK=128, STAGES=9),
    "gemm_64_t": gemm("gemm_skinny", 64, 4096, 4096, False, True, B_ROWS="n", BN=32, BK=128,
                      STAGES=9),
    "gemm_split": gemm("splitk_two_kernels", 128, 7168, 2048, False),
    "gemm_split_t": gemm("splitk_two_kernels", 64, 4096, 4096, False, True, SPLITS=4, B_ROWS="n"),
    "gemm_splitk": gemm("splitk_two_kernels", 256, 2048, 16384, False, SPLITS=4),
    "gemm_splitk_cluster": gemm("splitk_cluster", 256, 2048, 16384, False, SPLITS=2, BN=64,
                                STAGES=8),
    "gemm_mma_sync": gemm("gemm_ampere", 4096, 4096, 4096, False),
    "gemm_rs": Row("gemm_rs", {}, torch.matmul, product, "tflops", ("eager",)),
    "gemm_batched": Row("gemm_batched", {}, torch.matmul, product, "tflops", ("eager",), BOTH),
    "gemm_fp8": Row("gemm_halves", {"M": 8192, "N": 8192, "K": 8192, **FP8}, scaled, product,
                    "tflops", ("eager",), BOTH),
    "gemm_epilogue": Row("gemm_epilogue", {}, epilogue, product, "tflops", protocols=BOTH),
    "gemv_t": Row("gemv", {}, lambda x, w: x @ w.mT, read, "gbps", ("eager",)),
    "gemv": Row("gemv_columns", {}, lambda x, w: x @ w, read, "gbps", ("eager",)),
    "flash_attention": Row("flash_attention", {}, attention, pairs, *ATTENTION),
    "flash_attention_pipelined": Row("flash_attention_pipelined", {}, attention, pairs, *ATTENTION),
    "chain": memory("chain", chain),
    "chain_1g": memory("chain", chain, ROWS=131072, COLS=2048, CTA_ROWS=4096),
    "rmsnorm_2048": memory("rmsnorm", rmsnorm, ROWS=2048),
    "rmsnorm_32768": memory("rmsnorm", rmsnorm),
    "rmsnorm_long": memory("rmsnorm", rmsnorm, **LONG, THREADS=512),
    "layernorm_32768": memory("layernorm", layernorm),
    "layernorm_long": memory("layernorm", layernorm, **LONG, THREADS=256),
    "layernorm_passes": memory("layernorm_long", layernorm),
    "softmax_1024": memory("softmax_cta", softmax, ROWS=1024, COLS=4096, THREADS=128),
    "softmax_4": memory("softmax_split", softmax),
    "softmax_2048": memory("softmax", softmax),
    "softmax_32768": memory("softmax_cta", softmax, ROWS=32768, COLS=4096, THREADS=256),
    "softmax_long": memory("softmax_cta", softmax),
    "softmax_ring": memory("softmax_ring", softmax),
    "softmax_cluster": memory("softmax_cluster", softmax),
    "transpose": memory("transpose_smem", lambda x: x.mT.contiguous()),
    "transpose_f32": memory("transpose_swizzled", lambda x: x.mT.contiguous()),
    "row_sum": memory("row_sum", lambda x: x.sum(-1, dtype=torch.float32), read),
    "full_sum": memory("full_sum", lambda x: x.sum(dtype=torch.float32)[None], read),
}  # fmt: skip


# Times


def timed(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(LEAD_CYCLES)  # the host is ahead: its launch is no part of the time
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def interleaved(ours: Call, rival: Call) -> tuple[float, float]:
    seen: dict[int, list[float]] = {0: [], 1: []}
    for turn in range(ROUNDS + WARM):
        order = [0, 1]
        random.shuffle(order)
        for which in order:
            us = timed((ours, rival)[which])
            if turn >= WARM:
                seen[which].append(us)
    return statistics.median(seen[0]), statistics.median(seen[1])


def running(call: Call, us: float, seconds: float) -> float:
    """Microseconds of one of as many calls as ``seconds`` have room for, one after another."""
    count = max(1, int(seconds * 1e6 / us))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / count


def sustained(ours: Call, rival: Call, seconds: float) -> tuple[float, float, float]:
    """Of both, and how far the ratios of the repeats are apart."""
    seen: dict[int, list[float]] = {0: [], 1: []}
    calls = [(1, rival, timed(rival)), (0, ours, timed(ours))]
    for _, call, us in calls:
        running(call, us, HEAT / 2)
    for turn in range(REPEATS):
        for which, call, us in calls if turn % 2 else reversed(calls):
            running(call, us, SETTLE)
            seen[which].append(running(call, us, seconds))
    ratios = [theirs / mine for mine, theirs in zip(seen[0], seen[1], strict=True)]
    return statistics.mean(seen[0]), statistics.mean(seen[1]), max(ratios) - min(ratios)


def graphs(ours: Call, rival: Call) -> tuple[float, float]:
    mine, theirs = interleaved(captured(ours), captured(rival))
    return mine / GRAPH, theirs / GRAPH


def captured(call: Call) -> Call:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH):
            call()
    return graph.replay


def host(call: Call) -> float:
    """Microseconds of the host for a call whose parameters are packed already, while the
    device is idle enough to take each launch."""
    spent: list[float] = []
    for _ in range(HOST_CALLS // 10):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            call()
        spent.append((time.perf_counter() - began) / 10 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(spent)


def copy_rate() -> float:
    """GB/s of a device copy, read and written bytes."""
    x = torch.randn(COPY_BYTES // 4, device="cuda")
    y = torch.empty_like(x)
    us = statistics.median(timed(lambda: y.copy_(x)) for _ in range(20))
    return 2.0 * COPY_BYTES / us / 1e3


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                          text=True)  # fmt: skip
    return done.stdout.strip() or os.environ.get("COMMIT", "unknown")


def measured(name: str, row: Row, copy: float, seconds: float) -> list[dict[str, object]]:
    kernel = callable_of(build(load_source(file_of(row.program), None, row.consts)))
    inputs, weights, outputs = tensors(kernel)
    kernel.weights = weights
    given = [*inputs, *weights.values()]
    ours = lambda: kernel.into(outputs, *inputs)  # noqa: E731
    rivals = {"eager": row.rival}
    if "compiled" in row.forms:
        torch._dynamo.reset()
        rivals["compiled"] = torch.compile(row.rival, dynamic=False)
    ours()
    want = row.rival(*given).float()
    torch.cuda.synchronize()
    got = outputs[0].float().reshape(want.shape)
    apart = float((got - want).abs().max() / want.abs().max())
    if not apart <= WRONG:
        raise ValueError(f"results are wrong: off by {apart:.2e} of the largest")
    calls = {k: (lambda f=f: f(*given)) for k, f in rivals.items()}
    for call in calls.values():
        call()
    work = row.work(given)
    short = timed(ours) < SHORT or timed(calls["eager"]) < SHORT
    found: list[dict[str, object]] = []
    host_us = round(host(ours), 2)
    runs = {"interleaved": interleaved, "sustained": partial(sustained, seconds=seconds),
            "graph": graphs}  # fmt: skip
    for protocol in ("graph",) if short else row.protocols:
        timings = {k: runs[protocol](ours, call) for k, call in calls.items()}
        best = min(timings, key=lambda k: timings[k][1])
        mine, theirs, *spread = timings[best]
        rate = work / mine / (1e6 if row.unit == "tflops" else 1e3)
        line: dict[str, object] = {
            "row": name, "error": f"{apart:.2e}", "host_us": host_us,
            "protocol": protocol, "us": round(mine, 2), "rival": best,
            "rival_us": round(theirs, 2), "ratio": round(theirs / mine, 4),
            row.unit: round(rate, 1),
        }  # fmt: skip
        if spread:
            line["spread"] = round(spread[0], 4)
        if row.unit == "gbps":
            line["of_copy"] = round(rate / copy, 3)
            if not short and row.work is through:
                like = partial(torch.empty_like(inputs[0]).copy_, inputs[0])
                us, least = interleaved(ours, like)
                line["of_same"] = round(least / us, 3)
        print(" ".join(f"{k}={v}" for k, v in line.items()), flush=True)
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each sustained run")
    parser.add_argument("--eager", action="store_true", help="no compiled rivals")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_args()
    names = [n for n in ROWS if not given.rows or any(fnmatch.fnmatch(n, p) for p in given.rows)]
    if given.list:
        print("\n".join(names))
        return
    began = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(compiled, ROWS[n].program, ROWS[n].consts) for n in names]
        for name, job in zip(names, jobs, strict=True):
            if job.exception() is not None:
                print(f"row={name} failed={job.exception()}".replace("\n", " ")[:400], flush=True)
    print(f"built in {time.perf_counter() - began:.1f} s", flush=True)
    torch.manual_seed(random.randrange(1 << 30))
    before, copy = state(torch.cuda.current_device()), copy_rate()
    print(f"copy={copy:.0f} GB/s {before}", flush=True)
    found: list[dict[str, object]] = []
    for name in names:
        row = ROWS[name]
        if given.eager:
            row = Row(**{**vars(row), "forms": ("eager",)})
        try:
            found += measured(name, row, copy, given.seconds)
        except Exception as error:
            print(f"row={name} failed={type(error).__name__}: {error}"[:300], flush=True)
            if isinstance(error, torch.AcceleratorError):
                break
        if given.write:  # after each row, so that a run that is ended keeps what it has
            record = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit(),
                "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                "copy_gbps": round(copy, 1), "rows": found, "before": before,
                "after": state(torch.cuda.current_device()),
            }  # fmt: skip
            Path(given.write).write_text(json.dumps(record, indent=1) + "\n")
        torch.cuda.empty_cache()
    print(f"took {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
