"""How many cheats the judge catches, and how many honest twins it refuses.

    python bench/judge.py            # every twin, in processes of its own
    python bench/judge.py --shared   # those that do no harm share a process: quick
    python bench/judge.py --device   # those of a device too
    python bench/judge.py --chain    # what a check of the chain takes instead (--device: there too)

The twins are those of ``tests/judge/cheats``: cheats of known kinds with the honest use of the
same mechanism, attacks written against this judge, and HIR files whose Python reaches for it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # without this folder: it has a judge too

from judge.cheats.attacks import ATTACKS  # noqa: E402
from judge.cheats.catalogue import DEVICE, TWINS  # noqa: E402
from judge.cheats.devices import DEVICE_ATTACKS  # noqa: E402
from judge.cheats.outsiders import OUTSIDERS  # noqa: E402
from judge.cheats.programs import HIRS  # noqa: E402
from judge.cheats.twins import AGREES, judged, write_program  # noqa: E402
from judge.shared import Bench  # noqa: E402


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shared", action="store_true")
    options.add_argument("--device", action="store_true")
    options.add_argument("--chain", action="store_true")
    options.add_argument("--rounds", type=int, default=3, help="of checks of the chain")
    asked = options.parse_args()
    if asked.chain:
        chain(["cpu", "cuda"] if asked.device else ["cpu"], asked.rounds)
        return
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        write_program(folder)
        os.chdir(folder)
        bench = Bench() if asked.shared else None
        attacks = [*ATTACKS, *OUTSIDERS]
        for kind, twins in (("cheats", TWINS), ("attacks", attacks), ("programs", HIRS)):
            run(kind, twins, folder, bench, counts)
        if bench is not None:
            bench.close()
        if asked.device:
            shared = Bench("cuda")
            run("device", [*DEVICE, *DEVICE_ATTACKS], folder, shared, counts)
            shared.close()
        os.chdir(ROOT)
    dishonest, honest = counts["dishonest"], counts["honest"]
    print(
        f"caught {counts['caught']} of {dishonest} cheats and attacks "
        f"({counts['caught'] / dishonest:.1%}); "
        f"refused {counts['refused']} of {honest} honest twins ({counts['refused'] / honest:.1%})"
    )


def run(kind, twins, folder, bench, counts) -> None:
    """Judge the twins and print what is not as it should be."""
    for twin in twins:
        start = time.perf_counter()
        verdict = judged(twin, folder, bench)
        seconds = time.perf_counter() - start
        right = verdict in twin.verdicts
        if twin.honest:
            counts["honest"] += 1
            counts["refused"] += verdict != AGREES
        else:
            counts["dishonest"] += 1
            counts["caught"] += verdict != AGREES
        note = "" if right else f"  expected {' or '.join(twin.verdicts)}"
        print(f"{kind:8} {twin.name:32} {verdict:26} {seconds:6.2f} s{note}", flush=True)


CHAIN = {
    "HIR": ("hello_two_cuts.py:Placed.chain --expected expected.pt", 0),
    "twin in C": ("hello_twin_c.py:InlineTwin", 0),
    "twin in CUDA": ("hello_twin_cuda.py:InlineTwin", 0),
    "wrong twin": ("hello_twin_wrong.py:FusedTwin", 1),
}
STATIC = {
    "no such function": "hello_cpu.py:OnCores.none",
    "no such output": "hello_cpu.py --out none --fn equal",
    "a wrong rival": "hello_cpu.py --against 'torch: none(x)'",
}


def chain(devices, rounds) -> None:
    """Times of checks of the chain and of refusals of `measure`, in turn with importing torch;
    bytecode is kept, as an installed package has it."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # where it is not installed but on the path; -c puts this folder before that
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", "from tilefoundry.cli.main import main; main()"]
    torch = [sys.executable, "-c", "import torch"]
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        for file in (ROOT / "examples").glob("hello_*"):
            shutil.copy(file, made)

        def took(line, exit) -> float:
            start = time.perf_counter()
            done = subprocess.run(line, cwd=made, env=env, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            if done.returncode != exit:
                sys.exit(f"{line[-20:]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            return seconds

        took([sys.executable, "hello_reference.py"], 0)
        asked = "--inputs files:x.pt --out output --fn equal --device"
        rows = [
            (f"check {name}, {device}", [*command, "check", *f"{text} {asked} {device}".split()], e)
            for device in devices
            for name, (text, e) in CHAIN.items()
            if name != ("twin in C" if device == "cuda" else "twin in CUDA")
        ]
        for name, text in STATIC.items():
            line = [*command, "measure", *shlex.split(text)]
            rows.append((f"measure, {name}", line, 2 if "output" in name else 1))
        for name, line, exit in rows:
            times, imports = [], []
            for _ in range(rounds):
                imports.append(took(torch, 0))
                times.append(took(line, exit))
            spelled = " ".join(f"{t:.2f}" for t in sorted(times))
            print(f"{name:28} {spelled} s  import torch {min(imports):.2f} to {max(imports):.2f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
