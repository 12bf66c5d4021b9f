"""Kernels built from examples against torch on the same device, in the same run.

Protocols (named in each line): ``interleaved``: single launches of both in shuffled order,
median of the rounds; ``sustained``: each alone for half a second, in turn, mean of the repeats
without the first;
``graph``: as interleaved, a CUDA graph of ten launches each. Prints a line of ``key=value``
for each case; ``--write FILE`` adds them to a JSON file.

    python bench/gpu/kernels.py [--write FILE] [CASE ...]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tilefoundry.build import build, callable_of
from tilefoundry.lang.load import load_source

ROOT = Path(__file__).parents[2]
PROGRAMS = (ROOT / "examples" / "gpu", ROOT / "examples")
ROUNDS, WARM = 40, 5
LEAD_CYCLES = 200_000
SUSTAINED_SECONDS, REPEATS = 0.5, 4
GRAPH = 10
Call = Callable[[], Any]


def gemm(name: str, **consts: object) -> tuple[Call, Call, float, float]:
    kernel = made(name, consts)
    a, b = (arg(kernel, n) for n in range(2))
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device="cuda")
    rival_out = torch.empty_like(out)
    flops = 2.0 * a.shape[0] * a.shape[1] * b.shape[1]
    ours, rival = (lambda: kernel.into([out], a, b)), (lambda: torch.matmul(a, b, out=rival_out))
    return ours, rival, flops, error(ours, rival, out, rival_out)


def made(name: str, consts: dict[str, object]) -> Any:
    found = next(p for folder in PROGRAMS if (p := folder / f"{name}.py").is_file())
    loaded = load_source(str(found), None, consts)
    began = time.perf_counter()
    built = build(loaded)
    kernel = callable_of(built)
    kernel.build_seconds = time.perf_counter() - began
    return kernel


def arg(kernel: Any, n: int) -> torch.Tensor:
    a = kernel.built.source.arguments[n]
    return torch.randn(tuple(a.shape), device="cuda").to(getattr(torch, a.dtype.torch))


def error(ours: Call, rival: Call, x: torch.Tensor, y: torch.Tensor) -> float:
    ours()
    rival()
    torch.cuda.synchronize()
    apart = (x.float() - y.float()).abs().max() / y.float().abs().max()
    return float(apart)


def rows(name: str, torch_form: Callable[..., torch.Tensor]) -> tuple[Call, Call, float, float]:
    """A memory-bound program of one input and one output; counts bytes."""
    kernel = made(name, {})
    x = arg(kernel, 0)
    out = torch.empty_like(x)
    kept: list[torch.Tensor] = []

    def rival() -> None:
        kept[:] = [torch_form(x)]

    ours = lambda: kernel.into([out], x)  # noqa: E731
    ours()
    rival()
    torch.cuda.synchronize()
    apart = float((out.float() - kept[0].float()).abs().max() / kept[0].float().abs().max())
    return ours, rival, 2.0 * x.numel() * x.element_size(), apart


def attention(name: str) -> tuple[Call, Call, float, float]:
    """Queries at the end of the keys, which each sees up to its own place."""
    from torch.nn.attention.bias import causal_lower_right
    from torch.nn.functional import scaled_dot_product_attention

    kernel = made(name, {})
    q, k, v = (arg(kernel, n) for n in range(3))
    out = torch.empty_like(q)
    share = q.shape[2] // k.shape[2]
    qt = q.transpose(1, 2)
    kt, vt = (x.transpose(1, 2).repeat_interleave(share, 1).contiguous() for x in (k, v))
    mask = causal_lower_right(q.shape[1], k.shape[1])
    kept: list[torch.Tensor] = []

    def rival() -> None:
        kept[:] = [scaled_dot_product_attention(qt, kt, vt, attn_mask=mask)]

    ours = lambda: kernel.into([out], q, k, v)  # noqa: E731
    ours()
    rival()
    torch.cuda.synchronize()
    other = kept[0].transpose(1, 2).float()
    rows, keys = q.shape[1], k.shape[1]
    pairs = rows * keys - rows * (rows - 1) / 2
    flops = 4.0 * q.shape[0] * q.shape[2] * q.shape[3] * pairs
    return ours, rival, flops, float((out.float() - other).abs().max() / other.abs().max())


def scaled() -> tuple[Call, Call, float, float]:
    """fp8 against torch._scaled_mm with scales of 1."""
    kernel = made("gemm_fp8", {})
    a, b = arg(kernel, 0), arg(kernel, 1)
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.bfloat16, device="cuda")
    one = torch.ones((), device="cuda")
    kept = torch.empty_like(out)

    def rival() -> None:
        torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, out=kept)

    ours = lambda: kernel.into([out], a, b)  # noqa: E731
    flops = 2.0 * a.shape[0] * a.shape[1] * b.shape[0]
    return ours, rival, flops, error(ours, rival, out, kept)


def layernorm() -> tuple[Call, Call, float, float]:
    kernel = made("layernorm_long", {})
    x, weight, bias = (arg(kernel, n) for n in range(3))
    kernel.weights = {"weight": weight, "bias": bias}
    out = torch.empty_like(x)
    kept: list[torch.Tensor] = []

    def rival() -> None:
        kept[:] = [torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)]

    ours = lambda: kernel.into([out], x)  # noqa: E731
    ours()
    rival()
    torch.cuda.synchronize()
    apart = float((out.float() - kept[0].float()).abs().max() / kept[0].float().abs().max())
    return ours, rival, 2.0 * x.numel() * x.element_size(), apart


CASES: dict[str, Callable[[], tuple[Call, Call, float, float]]] = {
    "gemm_optimal": lambda: gemm("gemm_optimal"),
    "gemm_own_storer": lambda: gemm("gemm_own_storer"),
    "gemm_halves": lambda: gemm("gemm_halves"),
    "gemm_halves_16": lambda: gemm("gemm_halves", GROUP=16),
    "gemm_halves_8192": lambda: gemm("gemm_halves", M=8192, N=8192, K=8192),
    "gemm_halves_4096": lambda: gemm("gemm_halves", M=4096, N=4096, K=4096),
    "gemm_ampere": lambda: gemm("gemm_ampere"),
    "gemm_rs": lambda: gemm("gemm_rs"),
    "gemm_fp8": scaled,
    "flash_attention": lambda: attention("flash_attention"),
    "flash_attention_pipelined": lambda: attention("flash_attention_pipelined"),
    "layernorm_long": layernorm,
    "chain": lambda: rows("chain", lambda x: (x * x + x) * x),
    "softmax": lambda: rows("softmax", lambda x: torch.softmax(x, -1)),
    "softmax_cta": lambda: rows("softmax_cta", lambda x: torch.softmax(x, -1)),
}
BOTH = ("gemm_optimal", "gemm_own_storer", "gemm_halves", "gemm_fp8")


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


def sustained(ours: Call, rival: Call) -> tuple[float, float]:
    seen: dict[int, list[float]] = {0: [], 1: []}
    calls = [(1, rival), (0, ours)]
    for turn in range(REPEATS + 1):
        for which, call in calls if turn % 2 else reversed(calls):
            count = max(1, int(SUSTAINED_SECONDS * 1e6 / timed(call)))
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            if turn:  # the first is on a cool card
                seen[which].append(start.elapsed_time(end) * 1e3 / count)
    return statistics.mean(seen[0]), statistics.mean(seen[1])


def captured(call: Call) -> Call:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH):
            call()
    return graph.replay


def host(call: Call, calls: int) -> float:
    """Microseconds of the host for a call whose parameters are packed already."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    spent = (time.perf_counter() - began) / calls * 1e6
    torch.cuda.synchronize()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    torch.manual_seed(random.randrange(1 << 30))
    found: list[dict[str, object]] = []
    for name in given.cases or CASES:
        ours, rival, work, apart = CASES[name]()
        is_gemm = name.startswith(("gemm", "flash"))
        record: dict[str, object] = {
            "case": name,
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "error": f"{apart:.2e}",
        }
        timings = {"interleaved": (ours, rival, interleaved)}
        if name.startswith(BOTH):
            timings["sustained"] = (ours, rival, sustained)
        record["host_us"] = round(host(ours, 20 if is_gemm else 200), 2)
        if not is_gemm:
            timings = {"graph": (captured(ours), captured(rival), interleaved)}
        for protocol, (a, b, way) in timings.items():
            mine, theirs = way(a, b)
            if protocol == "graph":
                mine, theirs = mine / GRAPH, theirs / GRAPH
            unit = "tflops" if is_gemm else "gbps"
            rate = work / mine / (1e6 if is_gemm else 1e3)
            row = {**record, "protocol": protocol, "us": round(mine, 2),
                   "rival_us": round(theirs, 2), "ratio": round(theirs / mine, 4),
                   unit: round(rate, 1)}  # fmt: skip
            print(" ".join(f"{k}={str(v).replace(' ', '_')}" for k, v in row.items()), flush=True)
            found.append(row)
    if given.write:
        Path(given.write).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
