"""Host time of a call of each GPU program, and where it goes.

Microseconds, medians. ``into``: into tensors that are there; ``call``: outputs are made;
``ours``: ``into`` with a driver that does nothing; ``driver``: the launches alone, repeated in C.
Columns ``..10`` are means of ten calls to an idle device, ``..1`` the first of them, ``..200``
of 200 calls in a row (less than a launch queue holds). The first line has what a torch operation
into a tensor that is there takes, and what making a tensor does.

``driver`` is the floor, and nothing that a launch asks for moves it: of empty kernels launched by C
with no parameter, three pointers, three or six tensor maps, 200 KB of shared memory, as a cluster
or cooperatively, by cuLaunchKernel or cuLaunchKernelEx, on any stream, each took 3.5 to 4.2
microseconds in a bare process and 2.7 to 3.9 in one with torch, whose add into a tensor that is
there took 7.5. Programmatic dependent launch alone is cheaper, by half a microsecond (H200, driver
580.159.04, 2026-11-30). Several launches are one start of a graph: 1.5 microseconds whatever it
holds, and 0.3 more for each kernel whose parameters change.

    python bench/gpu/host.py [--write FILE] [CASE ...]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from programs.reference import inputs  # noqa: E402
from programs.sizes import EVALUATE, path  # noqa: E402
from tilefoundry.build import build, callable_of  # noqa: E402
from tilefoundry.build.compiler import compiled  # noqa: E402
from tilefoundry.emit import Source  # noqa: E402
from tilefoundry.lang.load import load_source  # noqa: E402
from tilefoundry.targets.cuda.host import driver  # noqa: E402
from tilefoundry.targets.cuda.host.direct import DRIVER  # noqa: E402

ROUNDS = 30
MANY = 200
DRIVERS = """
typedef int Launch(const void *config, void *function, void **parameters, void **extra);
typedef int Start(void *ready, void *stream);
static Launch *real;
static Start *graph;
static int repeats;
void use(Launch *launch, Start *start) { real = launch, graph = start; }
void repeat(int count) { repeats = count; }
int none(const void *config, void *function, void **parameters, void **extra) { return 0; }
int idle(void *ready, void *stream) { return 0; }
int starts(void *ready, void *stream) {
    int status = 0;
    for (int n = 0; n < repeats && !status; n++) status = graph(ready, stream);
    return status;
}
int many(const void *config, void *function, void **parameters, void **extra) {
    int status = 0;
    for (int n = 0; n < repeats && !status; n++) status = real(config, function, parameters, extra);
    return status;
}
"""


def built(case: str) -> None:
    build(load_source(path(case), None, EVALUATE[case]))


def drivers() -> Any:
    """Drivers that do nothing, and that do all many times."""
    text = {"drivers.c": DRIVERS}
    lib = ctypes.CDLL(
        str(compiled(Source("drivers", "cpu", text, text, "none", (), 0, ())).library)
    )
    start = driver.library().cuGraphLaunch
    lib.use(ctypes.cast(driver.launcher(), ctypes.c_void_p), ctypes.cast(start, ctypes.c_void_p))
    return lib


def spent(call: Any, times: int, each: int = 1) -> float:
    """Microseconds for one of ``times`` calls to an idle device; a call does ``each`` at once."""
    found: list[float] = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = perf_counter_ns()
        for _ in range(times):
            call()
        found.append((perf_counter_ns() - began) / 1e3 / times / each)
    torch.cuda.synchronize()
    return round(statistics.median(found), 2)


def measured(case: str, lib: Any) -> dict[str, object]:
    loaded = load_source(path(case), None, EVALUATE[case])
    func = loaded.module.funcs[loaded.func]
    values = inputs({p.name: p.type for p in func.params})
    kernel = callable_of(build(loaded))
    kernel.weights = {n: values[n].cuda() for n in func.weights}
    plain = [values[p.name].cuda() for p in func.params if p.name not in func.weights]
    outs = kernel(*plain)
    outs = outs if isinstance(outs, tuple) else (outs,)
    into = lambda: kernel.into(outs, *plain)  # noqa: E731
    make = lambda: kernel(*plain)  # noqa: E731
    row: dict[str, object] = {"case": case}
    for name, call in (("into", into), ("call", make)):
        for times in (1, 10, MANY):
            row[f"{name}{times}"] = spent(call, times)
    head, start = kernel._direct._call, DRIVER.index("cuGraphLaunch")
    real = head.launch, head.driver[start]

    def through(launch: Any, graph: Any) -> None:
        head.launch = ctypes.cast(launch, ctypes.c_void_p)
        head.driver[start] = ctypes.cast(graph, ctypes.c_void_p).value

    through(lib.none, lib.idle)
    row["ours"], row["ours_call"] = spent(into, MANY), spent(make, MANY)
    through(lib.many, lib.starts)
    for times in (1, 10, MANY):
        lib.repeat(times)
        row[f"driver{times}"] = spent(into, 1, times)
    head.launch, head.driver[start] = real
    plans = kernel._plans
    row["launches"] = " ".join(
        f"{len(p.pointers)}p{len(p.maps)}m{p.shared_bytes}s"
        f"{'g' if p.cooperative else ''}{'c' if p.cluster > 1 else ''}"
        for p in plans
    )
    return row


def said(row: dict[str, object]) -> None:
    print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    cases = given.cases or sorted(EVALUATE)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(pool.map(built, cases))
    x = torch.zeros(64, 64, device="cuda")
    rows: list[dict[str, object]] = [{"case": "torch"}]
    for times in (1, 10, MANY):
        rows[0][f"into{times}"] = spent(lambda: torch.neg(x, out=x), times)
    rows[0]["empty"] = spent(lambda: torch.empty((64, 64), device="cuda"), MANY)
    guards: Any = torch._C._dynamo.guards
    rows[0]["empty_strided_cuda"] = spent(
        lambda: guards._empty_strided_cuda((64, 64), (64, 1), torch.float32), MANY
    )
    said(rows[0])
    lib = drivers()
    for case in cases:
        rows.append(measured(case, lib))
        said(rows[-1])
    if given.write:
        record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
        Path(given.write).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
