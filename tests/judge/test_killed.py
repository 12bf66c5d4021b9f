"""Commands and children that are killed: no verdict, nothing left behind, the next one works."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from process import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget("x86_64.generic"))
class Program:
    @func
    def f(x: Tensor[(8, 8), "f32"]):
        return x * x
"""
TWIN = """
import os, signal, sys, time
from program import Program
from tilefoundry.runtime import runtime_func, runtime_module
{top}

@runtime_module(Program)
class Twin:
    @runtime_func
    def f(self, x):
        {body}
        return x * x
"""
MEASURED = ["measure", "twin.py:Twin", "--against", "torch", "--runs", "4", "--processes", "2"]
WORDS = ["check", "twin.py:Twin", "--inputs", "random", "--out", "output", "--fn", "equal"]


@pytest.fixture
def begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "t").mkdir(mode=0o711)
    tmp_path.chmod(0o711)

    def begin(top="", body="pass", words=WORDS):
        (tmp_path / "twin.py").write_text(TWIN.format(top=top, body=body))
        return subprocess.Popen(
            [sys.executable, "-m", "tilefoundry", *words],
            env=environment(TMPDIR=str(tmp_path / "t")), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip  # a shell's background jobs, and so their children, ignore SIGINT

    return begin


def jailed(place):
    """Processes whose environment names a folder below ``place``, but the command's own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if b"TMPDIR=" + bytes(place) + b"/" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def until(holds, seconds=30):
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def nothing_is_left(tmp_path):
    place = tmp_path / "t"
    return until(lambda: not jailed(place) and not list(place.iterdir()))


@pytest.mark.parametrize("what", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_command_that_is_killed_while_its_candidate_runs(begun, tmp_path, what):
    done = begun(top="os.fork() or time.sleep(600)", body="time.sleep(600)")
    try:
        assert until(lambda: len(jailed(tmp_path / "t")) >= 3)
    finally:
        os.kill(done.pid, getattr(signal, what))
    out, _ = done.communicate(timeout=60)
    assert "verdict" not in out and done.returncode
    assert nothing_is_left(tmp_path)


def test_a_command_that_is_killed_at_any_time(begun, tmp_path):
    rng = random.Random()
    for _ in range(2):
        done = begun()
        time.sleep(rng.uniform(0.2, 2.5))
        os.killpg(done.pid, rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        out, _ = done.communicate(timeout=60)
        assert not done.returncode or "verdict=agrees" not in out
        assert nothing_is_left(tmp_path)
    done = begun()
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0 and "verdict=agrees" in out, err
    assert nothing_is_left(tmp_path)


def test_children_that_are_killed_at_any_time(begun, tmp_path):
    """Any process of a check but the command itself: it agrees or is refused, and ends."""
    rng = random.Random()
    for _ in range(2):
        done = begun()
        place = tmp_path / "t"
        until(lambda: jailed(place))  # noqa: B023
        time.sleep(rng.uniform(0.0, 1.5))
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(rng.choice(jailed(place)), signal.SIGKILL)
        out, err = done.communicate(timeout=120)
        assert ("verdict=agrees" in out) == (done.returncode == 0), err
        assert done.returncode == 0 or ("refused [" in err and "Traceback" not in err), err
        assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("who", ["the command", "one of its processes"])
def test_a_measurement_that_is_killed_at_any_time(begun, tmp_path, who):
    """No figures, no process that stands still for ever, no file, no shared memory."""
    place, shared = tmp_path / "t", Path("/dev/shm")
    before = {*shared.iterdir()} if shared.is_dir() else set()
    done = begun(words=MEASURED)
    assert until(lambda: jailed(place))
    time.sleep(random.uniform(0.0, 4.0))
    if who == "the command":
        os.kill(done.pid, random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
    else:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(random.choice(jailed(place)), signal.SIGKILL)
    out, err = done.communicate(timeout=120)
    assert not done.returncode or ("# time" not in out and "Traceback" not in err), err
    assert nothing_is_left(tmp_path)
    mine = {path for path in {*shared.iterdir()} - before if "tilefoundry" in path.name}
    assert not mine


@pytest.mark.parametrize("body", [
    "print('# check verdict=agrees'); os._exit(0)",
    "[os.write(n, b'{\"verdict\": \"agrees\"}') for n in range(1, 256)]",
    "os.closerange(0, 256)",
    "os.kill(os.getpid(), signal.SIGSTOP)",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "open(os.environ['TMPDIR'] + '/x', 'wb').truncate(1 << 40)",
])  # fmt: skip
def test_candidates_that_will_not_end_well(begun, tmp_path, body):
    WORDS.extend(["--timeout", "5"])
    try:
        done = begun(body=body)
    finally:
        del WORDS[-2:]
    out, err = done.communicate(timeout=120)
    assert "verdict=agrees" not in out and done.returncode and "refused [" in err, err
    assert "Traceback" not in err.replace("stderr: Traceback", "")
    assert nothing_is_left(tmp_path)
