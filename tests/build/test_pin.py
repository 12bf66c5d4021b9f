"""Where a program's threads run: workers on processors of their own, the caller's left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs_cpu" / "gemm_avx2.py"
PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(len(PROCESSORS) < 2, reason="one processor, or none it tells of")

SCRIPT = """
import json, os, sys
import numpy
from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.lang.load import load_source

os.sched_setaffinity(0, {first})
before = set(map(int, os.listdir("/proc/self/task")))
kernel = Compiled(build(load_source(sys.argv[1], None, {{}}), ("-O1",), {model}), 2)
for allowed in {masks}:
    os.sched_setaffinity(0, allowed)
    kernel(numpy.ones((96, 64), "f"), numpy.ones((64, 64), "f"))
made = set(map(int, os.listdir("/proc/self/task"))) - before
print(json.dumps([sorted(os.sched_getaffinity(t)) for t in (0, *made)]))
"""


def masks_of(first, masks, **env):
    """The caller's mask and those of the workers after calls under each of ``masks``."""
    from tilefoundry.build.machine import missing

    model = bool(missing(("avx2", "fma")))
    script = SCRIPT.format(first=first, masks=masks, model=model)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run([sys.executable, "-c", script, str(PROGRAM)], env=clean | env,
                          capture_output=True, text=True, check=True)  # fmt: skip
    caller, *workers = json.loads(done.stdout)
    return caller, workers


def test_a_worker_has_a_processor_of_its_own_and_the_caller_keeps_its_mask():
    two = PROCESSORS[:2]
    caller, workers = masks_of(set(two), [set(two)])
    assert caller == two
    assert len(workers) == 1
    assert len(workers[0]) == 1
    assert workers[0][0] in two


def test_a_mask_of_one_processor_pins_nobody():
    one = PROCESSORS[:1]
    caller, workers = masks_of(set(one), [set(one)])
    assert caller == one
    assert workers == [one]  # as it was born, more threads than processors


def test_a_worker_is_let_go_when_there_are_too_few_processors():
    two, one = PROCESSORS[:2], PROCESSORS[1:2]
    caller, workers = masks_of(set(two), [set(two), set(one)])
    assert caller == one
    assert workers == [one]


def test_who_sets_openmp_s_binding_decides():
    two = PROCESSORS[:2]
    caller, workers = masks_of(set(two), [set(two)], OMP_PROC_BIND="false")
    assert caller == two
    assert workers == [two]
