"""How many cheats the judge catches, and how many honest twins it refuses.

    python bench/judge.py            # every twin, in processes of its own
    python bench/judge.py --shared   # those that do no harm share a process: quick
    python bench/judge.py --device   # those of a device too

The twins are those of ``tests/judge/cheats``: cheats of known kinds with the honest use of the
same mechanism, attacks written against this judge, and HIR files whose Python reaches for it.
"""

from __future__ import annotations

import argparse
import os
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
    asked = options.parse_args()
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


if __name__ == "__main__":
    main()
