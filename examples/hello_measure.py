"""Time the twin against eager PyTorch: interleaved, medians, both on this machine's CPU."""

import statistics
import time

import torch
from hello_reference import reference
from hello_twin_c import InlineTwin


def interleaved(functions, x, warmup=3, rounds=15):
    """Median seconds of each function; each round runs all of them."""
    times = {name: [] for name in functions}
    for n in range(warmup + rounds):
        for name, fn in functions.items():
            start = time.perf_counter()
            fn(x)
            if n >= warmup:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


if __name__ == "__main__":
    x = torch.load("x.pt")
    medians = interleaved({"PyTorch reference": reference, "C twin": InlineTwin().chain}, x)
    for name, seconds in medians.items():
        print(f"{name}: {seconds * 1e3:.2f} ms")
    print(f"speed-up: {medians['PyTorch reference'] / medians['C twin']:.2f}x")
