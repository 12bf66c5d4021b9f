"""Results read from a process that stands still: what stands, what only seems to."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tilefoundry.diag import Refusal
from tilefoundry.judge.jail import tree
from tilefoundry.judge.measure import player, still
from tilefoundry.judge.measure.clock import Reading
from tilefoundry.judge.measure.raw import PROBE
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.session import measure
from tilefoundry.judge.measure.still import Still

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory of others: Linux")
HEAD = """
import ctypes, os, signal, sys, threading, time
probe = ctypes.create_string_buffer({probe!r})
data = (ctypes.c_float * 1024)(*range(1024))
"""
TOLD = "\nprint(ctypes.addressof(probe), ctypes.addressof(data), flush=True)\nsys.stdin.read()\n"
COUNTS = """
def count():
    while True:
        data[0] += 1
threading.Thread(target=count, daemon=True).start()
"""


class Stub:
    """A child without a jail: stopped as the first process of one stops all in it, once."""

    def __init__(self, pid):
        self.pid = pid

    def stop(self):
        for pid in (self.pid, *tree.descendants(self.pid)):
            os.kill(pid, signal.SIGSTOP)

    def died(self, how):
        raise RuntimeError(how)


@pytest.fixture
def process(monkeypatch):
    """A process that runs some text, its memory, and where its data lie."""
    made = []

    def start(text=""):
        text = HEAD.format(probe=PROBE) + text + TOLD
        one = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, start_new_session=True
                               )  # fmt: skip
        made.append(one)
        probe, data = map(int, one.stdout.readline().split())
        monkeypatch.setattr(
            Still, "_all", lambda self: [self.pid, *tree.descendants(self.pid)]
        )
        found = Still.of(Stub(one.pid), one.pid, probe)
        if found is None:
            pytest.skip("the memory of others cannot be read here")
        found.results = 4096
        return found, data

    yield start
    for one in made:
        os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def place(at, size=4096):
    return [[["f32", [1024], [1], size, at]]]


@pytest.mark.parametrize("text", ["", COUNTS], ids=["waits", "computes"])
def test_what_lies_in_memory_is_read(process, text):
    found, at = process(text)
    found.stop()
    first, second = (found.read(place(at), 0)[0].values() for _ in range(2))
    assert np.array_equal(first, second)  # nothing goes on meanwhile
    assert np.array_equal(first[1:], np.arange(1, 1024))


def test_who_is_woken_is_refused(process):
    """By a timer that was set before, say, or by a helper that was not stopped yet."""
    found, at = process(COUNTS)
    found.stop()
    os.kill(found.pid, signal.SIGCONT)
    time.sleep(0.05)
    with pytest.raises(RuntimeError, match="went on while"):
        found.read(place(at), 0)


def test_who_does_not_stop_is_refused(process, monkeypatch):
    monkeypatch.setattr(still, "PATIENCE", 0.05)
    monkeypatch.setattr(Stub, "stop", lambda self: None)
    found, _ = process(COUNTS)
    with pytest.raises(RuntimeError, match="does not stand still"):
        found.stop()


@pytest.mark.parametrize(
    "told",
    [place(8), place(-1), place(1 << 70), [[["f32", [1 << 40], [1], 4 << 40, 8]]], [[["f32"]]],
     None, [[None]], [[["f32", [1024], [1], "4096", 8]]]],
    ids=["no memory", "below", "beyond", "endless", "short", "none", "nothing", "a word"],
)  # fmt: skip
def test_what_a_process_tells_of_places_is_not_believed(process, told):
    found, _ = process()
    found.stop()
    with pytest.raises(RuntimeError, match="no known form"):
        found.read(told, 0)


def test_elements_that_share_memory_are_no_more_than_results_are(process):
    """A shape of a terabyte, all of it one element, would fill our memory."""
    found, at = process()
    found.stop()
    (one,) = found.read([[["f32", [1024], [0], 4, at + 8]]], 0)
    assert np.array_equal(one.values(), np.full(1024, 2))
    with pytest.raises(RuntimeError, match="no known form"):
        found.read([[["f32", [1 << 38], [0], 4, at]]], 0)


def test_who_has_ended_may_be_gone_at_any_time(process, monkeypatch):
    """The first process of a jail, which never stands, takes what was left to it."""
    found, at = process()
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(Still, "_all", lambda self: [self.pid, ended.pid])
    found.stop()
    ended.wait()
    assert found.read(place(at), 0)
    found.stop()  # its number is still told
    assert found.read(place(at), 0)


@pytest.mark.parametrize("probe", [None, "8", 8, 0, -1, 1 << 80])
def test_memory_that_cannot_be_read_is_given(probe):
    assert Still.of(SimpleNamespace(), os.getpid(), probe) is None
    assert Still.of(SimpleNamespace(), 0, 8) is None


def room(threads, *readings):
    """What the report says that a cold call might hide, of clocks that read so in turn."""
    child = SimpleNamespace(pid=0, ask=lambda *_, **__: {"ns": [10_000_000]})
    clock = iter(Reading(*reading) for reading in readings)
    one = player.Player("candidate", child, [], threads, lambda pid: next(clock))
    one.still = SimpleNamespace(stop=lambda: None)
    one.runner = SimpleNamespace(signature=SimpleNamespace(func="f"), hold_form=lambda *_: None)
    one.fresh = SimpleNamespace(types={})
    one.batch(1, "cold")
    return one.clocks("cold")["room"]


def test_what_threads_may_do_before_they_stand_is_said_where_no_clock_holds_it():
    """0.5 ms until it stands, in which two threads work for 0.3 ms or all the time: they may spin
    until they are needed, or finish the call. One thread's work is on the processor's clock."""
    begin, answer = (0.0, 0.0), (0.01, 0.02)
    still = room(2, begin, answer, (0.0105, 0.02))
    assert room(2, begin, answer, (0.0105, 0.0203)) - still == pytest.approx(3e-4)
    assert room(2, begin, answer, (0.0105, 0.021)) - still == pytest.approx(5e-4)
    assert room(1, begin, answer, (0.0105, 0.0203)) == pytest.approx(still)


LATE = """
import threading, time
import torch
from tilefoundry.dsl import *
from tilefoundry.runtime import runtime_func, runtime_module
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget())
class Program:
    @func
    def f(x: Tensor[(64, 64), "f32"]):
        return x * x

def later(x, out):
    time.sleep(0.003)
    torch.mul(x, x, out=out)

@runtime_module(Program)
class Twin:
    calls = 0

    @runtime_func
    def f(self, x):
        Twin.calls += 1
        out = torch.zeros_like(x)
        if Twin.calls < 4:  # right while it is verified
            return torch.mul(x, x, out=out)
        threading.Thread(target=later, args=(x, out), daemon=True).start()
        return out
"""


def test_results_that_a_thread_writes_a_moment_later_are_missing(tmp_path, monkeypatch):
    """It sleeps in between, so that hardly a clock shows it."""
    (tmp_path / "late.py").write_text(textwrap.dedent(LATE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(player, "WARM_SECONDS", 1e-9)
    with pytest.raises(Refusal) as caught:
        measure(Request("late.py", "Twin.f", processes=1, runs=2))
    assert caught.value.diags[0].code == "measure-wrong"
