"""The static parts of the package load without torch and numpy."""

import subprocess
import sys

from sources import FILES

from process import environment

STATIC = ("diag", "quantity", "layout", "ir", "ops", "targets", "lang", "check", "analyze", "cli")
FACADES = ("dsl", "target", "runtime")
HEAVY = {"torch", "numpy", "transformers", "safetensors", "sympy"}
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sys.modules)
"""


def test_static_parts_load_nothing_heavy():
    names = []
    for path in FILES:
        parts = path.with_suffix("").parts
        if parts[0] in STATIC + FACADES:
            names.append(".".join(["tilefoundry", *parts]).removesuffix(".__init__"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert set(names) <= loaded
    assert not loaded & HEAVY
