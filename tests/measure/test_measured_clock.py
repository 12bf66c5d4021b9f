"""Times that a process tells of itself, held to clocks that are made up here."""

import os
import time

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.judge.measure.clock import (
    AGAIN,
    FREE,
    Batch,
    Cost,
    Doubt,
    Reading,
    aside,
    doubt,
    hold,
    read,
)
from tilefoundry.judge.measure.stage import timed_calls


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
    found = doubt("the candidate", batches, FREE, threads)
    assert (found is not None and found.certain) == refused


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
    assert (doubt("the candidate", batches, FREE, threads) is not None) == refused


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
    assert doubt("it", [honest, honest, lie], FREE, 1) is None
    assert doubt("it", [honest, lie, lie], FREE, 1).certain is False
    assert doubt("it", [honest, lie, lie, lie], FREE, 1).certain is True


def beside(*walls, cpu=None, waited=None):
    """Batches of which so much is in no call."""
    return [Batch((), Reading(wall, cpu, waited)) for wall in walls]


def test_what_a_program_of_ours_takes_may_be_taken():
    """10 ms, one of four 1 ms more, so that medians may be 2 ms more; beyond it 10 % and 0.2 ms."""
    usual = Cost.of(beside(*[0.010] * 6, *[0.011] * 2))
    assert usual.wall.usual == pytest.approx(0.010)
    assert usual.wall.noise == pytest.approx(0.002)
    # 10 + 1 + 0.2 + 2 ms
    assert doubt("it", beside(0.0131, 0.0131, 0.5), usual, 1) is None
    assert doubt("it", beside(0.0133, 0.0133, 0.0), usual, 1).certain is False
    assert doubt("it", beside(*[0.0133] * 3, 0.0), usual, 1).certain is True


def test_memory_that_is_slow_for_a_while_accuses_nobody():
    """What giving 16 MB of results took a process that hid nothing, in ms, beside a program of
    ours: the median is beyond what is room, one in four is not."""
    walls = (4.87, 4.93, 4.55, 4.92, 4.46, 3.96, 8.52, 4.84)
    usual = Cost.of(beside(*(w / 1e3 for w in (3.9, 3.95, 3.94, 3.9, 4.1, 4.0, 3.9, 3.95))))
    found = doubt("it", beside(*(w / 1e3 for w in walls)), usual, 2)
    assert found is not None and found.certain is False


@pytest.mark.parametrize("threads, certain", [(1, True), (2, False)])
def test_threads_that_spin_between_batches_accuse_nobody(threads, certain):
    """13 ms where a program of ours takes 8; one thread has nobody to spin for."""
    found = aside("it", beside(*[0.013] * 6), beside(*[0.008] * 6), threads, 2e-4)
    assert found is not None and found.certain is certain
    assert aside("it", beside(*[0.008] * 6), beside(*[0.008] * 6), threads, 2e-4) is None


def test_threads_that_spin_between_batches_are_no_doubt_where_nothing_takes_longer():
    usual = [Batch((), Reading(0.008, 0.008))] * 6
    spun = [Batch((), Reading(0.008, 0.015))] * 6
    assert aside("it", spun, usual, 2, 2e-4) is None
    assert aside("it", spun, usual, 1, 2e-4) is not None


def test_noise_of_one_clock_gives_no_room_on_another():
    """Our own process stood in line, or was woken late: that is no processor time."""
    waits = Cost.of([Batch((), Reading(w, 1e-4, w - 1e-4)) for w in (1e-4, 2e-4, 0.5, 0.6)])
    assert waits.own.noise == pytest.approx(0) and waits.cpu.noise == pytest.approx(0)
    late = Cost.of([Batch((), Reading(w, 1e-4, 0.0)) for w in (*[1e-4] * 3, 0.5, 0.5)])
    assert late.own.noise > 0.4 and late.cpu.noise == pytest.approx(0)
    assert doubt("it", [Batch((0.001,), Reading(0.002, 0.002, 0.0))] * 3, late, 1).certain


def test_a_machine_that_is_busy_gives_room():
    """0.75 ms that no call accounts for, where a program of ours leaves as much one time in three,
    in three, or never."""
    late = [Batch((1e-3,), Reading(1.85e-3, None))] * 3
    quiet, busy = Cost.of(beside(*[1e-4] * 15)), Cost.of(beside(*[1e-4] * 10, *[8e-4] * 5))
    rare = Cost.of(beside(*[1e-4] * 14, 8e-4))
    assert doubt("it", late, busy, 1) is None
    assert doubt("it", late, rare, 1).certain is False
    assert doubt("it", late, quiet, 1).certain is True


def test_few_batches_must_all_hide_much():
    fine, odd, worse = (Batch((1e-3,), Reading(w, w)) for w in (1e-3, 1.4e-3, 2.5e-3))
    assert doubt("it", [fine, worse], FREE, 1) is None
    assert doubt("it", [odd], FREE, 1) is None
    assert doubt("it", [odd] * 3, FREE, 1)
    assert doubt("it", [worse, worse], FREE, 1)


def found(certain, who="the candidate"):
    return [Doubt(who, 1e-3, 2e-3, 1e-3, certain)]


def verdicts(*starts):
    """The code after each start of the processes, until one refuses: None is a start without
    doubts."""
    doubts, clean = [], 0
    for start in starts:
        if start is None:
            clean += 1
            continue
        doubts.append(start)
        try:
            hold(doubts, clean)
        except Refusal as refusal:
            yield refusal.diags[0].code
            return
        yield ""


def test_what_repeats_beyond_all_noise_is_refused():
    lie = found(True)
    assert [*verdicts(lie, lie)] == ["", "measure-clock"]
    assert [*verdicts(lie, found(True, "the rival"), lie)] == ["", "", "measure-clock"]
    # one in two is no habit
    assert [*verdicts(None, lie, None, lie, None)] == ["", ""]
    assert [*verdicts(None, None, lie, lie, lie)][-1] == "measure-clock"


def test_doubts_that_noise_explains_accuse_nobody():
    noise = found(False)
    assert [*verdicts(*[noise] * AGAIN)] == [""] * AGAIN
    assert [*verdicts(*[noise] * AGAIN, None, noise)][-1] == "measure-noisy"
    assert [*verdicts(noise, found(True), noise, noise)][-1] == "measure-noisy"


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
        lambda x: seen.append(bytes(x)) or len(seen), [[data], [data]],
        [lambda: data.__setitem__(0, 1), lambda: data.__setitem__(3, 7)], lambda: next(ticks),
    )  # fmt: skip
    assert times == [5, 8] and results == [1, 2]
    assert seen == [b"\1\0\0\0", b"\1\0\0\7"]


def test_what_goes_on_until_a_process_stands_is_charged():
    """0.4 ms of processor time after the answer, in a stop that took 5 ms."""
    begun, answered = Reading(1.0, 0.5, 0.25), Reading(1.010, 0.510, 0.251)
    taken = answered.until(Reading(1.015, 0.5104, 0.251)).since(begun)
    assert taken.cpu == pytest.approx(0.0104)
    assert taken.wall == pytest.approx(0.015)  # work of several threads is held to both clocks
    assert taken.wall - taken.waited == pytest.approx(0.010 - 0.001)  # nobody is accused of it
    assert Reading(1.0, None).until(Reading(2.0, None)) == Reading(2.0, None)
