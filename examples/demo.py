"""The main job on this machine: decide, be refused, mend, check, build, check, measure.

Each step prints the command it runs, so that it can be repeated by hand in build/demo.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = HERE.parent / "build" / "demo"
FILES = ("hello_*.py", "hello_chain.c")


def step(title: str, command: str, expect: int = 0) -> None:
    """Run one command in the demo's folder; any other exit code ends the demo."""
    print(f"\n== {title}\n$ {command}", flush=True)
    done = subprocess.run(shlex.split(command), cwd=WORK, env=environment(), check=False)
    if done.returncode != expect:
        sys.exit(f"demo: exit {done.returncode}, expected {expect}")
    if expect:
        print(f"(exit {expect}: refused, as it must be)", flush=True)


def environment() -> dict[str, str]:
    """This interpreter's commands first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path}


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for pattern in FILES:
        for file in HERE.glob(pattern):
            shutil.copy(file, WORK)
    print(f"folder: {WORK.relative_to(HERE.parent)}")
    families = "--compute-cost --memory --roofline"
    files = "--inputs files:x.pt"
    step("PyTorch's own result on a saved tensor", "python hello_reference.py")
    step(
        "8 CTAs, everything in registers: does it fit?",
        f"tilefoundry analyze hello_placed_toobig.py:Placed.chain {families}",
        expect=1,
    )
    step(
        "8 x 32 CTAs of 32 x 8 threads: does it fit, and what bounds it?",
        f"tilefoundry analyze hello_two_cuts.py:Placed.chain {families}",
    )
    step(
        "Does the program compute what PyTorch computes?",
        f"tilefoundry check hello_two_cuts.py:Placed.chain {files} --expected expected.pt "
        "--device cpu --out output --fn equal",
    )
    step(
        "A twin compiled from C: does it agree with the program, bit for bit?",
        f"tilefoundry check hello_twin_c.py:InlineTwin {files} --device cpu "
        "--out output --fn equal",
    )
    step(
        "A twin that rounds once instead of three times",
        f"tilefoundry check hello_twin_wrong.py:FusedTwin {files} --device cpu "
        "--out output --fn equal",
        expect=1,
    )
    step(
        "The same computation, placed on the cores and vectors of this machine: its kernel",
        "tilefoundry build hello_cpu.py -o out",
    )
    step(
        "Is the kernel PyTorch's own result, bit for bit?",
        f"tilefoundry check hello_cpu.py --built {files} --expected expected.pt "
        "--out output --fn equal",
    )
    threads = min(2, os.cpu_count() or 1)
    rival = "'torch: (x * x + x) * x'"
    step(
        "How fast is it here?",
        f"tilefoundry measure hello_cpu.py {files} --against {rival} --reference {rival} "
        f"--threads {threads} --processes 1",
    )
    print("\nThe same program: refused once, accepted once, checked, compiled, and faster.")


if __name__ == "__main__":
    main()
