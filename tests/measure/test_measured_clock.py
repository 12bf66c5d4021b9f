"""Times that a process tells of itself, held to clocks that are made up here."""

import os
import time

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.judge.measure.clock import (
    Batch,
    Overhead,
    Reading,
    hold,
    hold_giving,
    overhead,
    read,
)
from tilefoundry.judge.measure.stage import timed_calls

FREE = Overhead(Reading(0.0, 0.0), Reading(0.0, 0.0))


def batch(told, wall, cpu):
    return Batch((told,), Reading(wall, cpu))


@pytest.mark.parametrize(
    ("told", "wall", "cpu", "threads", "refused"),
    [
        (0.010, 0.0101, 0.0100, 1, False),  # all accounted for
        (0.010, 0.0300, 0.0100, 1, False),  # the parent was woken late
        (0.010, 0.0101, 0.0300, 2, False),  # a second thread that worked, then waited by spinning
        (0.010, 0.0101, 0.0300, 1, True),  # one thread was asked for, two worked
        (0.005, 0.0101, 0.0100, 1, True),  # the clock was halved
        (0.005, 0.0101, 0.0200, 2, True),  # halved, on two threads
        (0.010, 0.0300, None, 1, True),  # no CPU time is known: the wall clock decides
    ],
)
def test_hidden_work_is_refused(told, wall, cpu, threads, refused):
    batches = [batch(told, wall, cpu)] * 3
    if not refused:
        return hold("the candidate", batches, FREE, threads)
    with pytest.raises(Refusal) as caught:
        hold("the candidate", batches, FREE, threads)
    assert caught.value.diags[0].code == "measure-clock"
    assert "the candidate" in str(caught.value)


@pytest.mark.parametrize(
    ("told", "wall", "waited", "refused"),
    [
        (0.002, 0.010, 0.0, True),  # its process slept while another one worked
        (0.002, 0.010, 0.0075, False),  # it stood ready, or the command did
        (0.010, 0.0122, 0.0, False),  # a neighbour of the virtual machine
    ],
)
@pytest.mark.parametrize("threads", [1, 4])
def test_work_in_another_process_is_refused(told, wall, waited, refused, threads):
    batches = [Batch((told,), Reading(wall, told, waited))] * 3
    if not refused:
        return hold("the candidate", batches, FREE, threads)
    with pytest.raises(Refusal) as caught:
        hold("the candidate", batches, FREE, threads)
    assert caught.value.diags[0].code == "measure-clock"


def test_the_time_in_a_processors_queue_is_told():
    before = read(os.getpid())
    if before.waited is None:
        pytest.skip("this system does not tell how long a thread waited")
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.02:
        pass
    taken = read(os.getpid()).since(before)
    # our own thread is counted twice here, as that of the process and as ours
    assert taken.wall == pytest.approx(taken.cpu + taken.waited / 2, abs=0.01)


def test_the_median_batch_counts():
    honest, lie = batch(0.010, 0.010, 0.010), batch(0.002, 0.010, 0.010)
    hold("it", [honest, honest, lie], FREE, 1)
    with pytest.raises(Refusal):
        hold("it", [honest, lie, lie], FREE, 1)


def test_results_that_are_only_computed_when_they_are_asked_for():
    hold_giving("it", 0.0549, 0.010)  # 5 ms, and five times as long
    with pytest.raises(Refusal) as caught:
        hold_giving("it", 0.0551, 0.010)
    assert caught.value.diags[0].code == "measure-clock"


def test_overhead_is_of_requests_and_of_calls():
    one = [Batch((1e-7,), Reading(w, 1e-5)) for w in (2e-4, 1e-4, 9e-4)]
    many = [Batch((1e-7,) * 11, Reading(w, 3e-5)) for w in (3e-4, 3.01e-4, 2.9e-4)]
    found = overhead(one, many)
    assert found.request.wall == pytest.approx(2e-4 - 1e-7)
    assert found.of(21).wall == pytest.approx(2e-4 - 1e-7 + 21 * (1e-4 - 1e-6) / 10)
    assert found.of(1).cpu == pytest.approx(1e-5 - 1e-7 + (2e-5 - 1e-6) / 10)


def test_a_machine_that_was_busy_before_any_authors_code_ran_gives_room():
    def empties(*walls):
        return [Batch((1e-7,), Reading(w, None)) for w in walls]

    many = [Batch((1e-7,) * 11, Reading(1e-4, None))] * 3
    quiet = overhead(empties(*[1e-4] * 15), many)
    busy = overhead(empties(*[1e-4] * 13, 6e-4, 9e-4), many)
    assert quiet.noise == pytest.approx(0) and busy.noise == pytest.approx(5e-4)
    late = Batch((1e-3,), Reading(1.75e-3, None))  # 0.75 ms that no call accounts for
    hold("it", [late], busy, 1)
    with pytest.raises(Refusal):
        hold("it", [late], quiet, 1)


def test_the_processors_time_is_of_all_threads_of_a_process():
    before = read(os.getpid())
    if before.cpu is None:
        pytest.skip("this system does not tell the CPU time of a process")
    own = time.process_time()
    while time.process_time() - own < 0.02:
        pass
    taken = read(os.getpid()).since(before)
    assert taken.cpu == pytest.approx(time.process_time() - own, abs=0.005)


def test_each_call_has_inputs_of_its_own_and_its_own_time():
    data, seen = bytearray(4), []
    ticks = iter([10, 15, 20, 28])
    times, results = timed_calls(
        lambda x: seen.append(bytes(x)) or len(seen), [data],
        [(memoryview(data), 0, b"\1"), (memoryview(data), 3, b"\7")], lambda: next(ticks),
    )  # fmt: skip
    assert times == [5, 8] and results == [1, 2]
    assert seen == [b"\1\0\0\0", b"\1\0\0\7"]
