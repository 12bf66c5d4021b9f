"""The clock of an accelerator, held to the command's: a device and its process are made up here."""

import ctypes
import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.child import Program
from tilefoundry.judge.measure.clock import Reading
from tilefoundry.judge.measure.device import DevicePlayer, sets_of
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.raw import Reader
from tilefoundry.judge.measure.report import Report
from tilefoundry.judge.measure.statistics import spread
from tilefoundry.judge.tensor import RawTensor, place

REQUEST = 3e-4
"""Seconds that a request takes beside what is timed."""


class Device:
    """A child: ``each`` second a call on the device, of which it tells ``told`` seconds, and
    ``late`` seconds of work when results are asked for."""

    pid, isolation = 0, {}

    def __init__(self, each, told=None, l2=1 << 20, late=0.0):
        self.now, self.each, self.told, self.l2 = 0.0, each, each if told is None else told, l2
        self.late, self.log, self.sets = late, [], 0

    def ask(self, what, doing, **request):
        json.dumps({name: value for name, value in request.items() if name != "inputs"})
        self.log.append((what, request))
        self.now += REQUEST
        if what == "pin":
            return {"l2": self.l2}
        if what == "stage":
            assert [row[0] for row in request["renewed"]] == [0]
        if what == "stage":
            self.sets = request["sets"]
        if what == "results":
            self.now += self.late * len(request["calls"])
        if what != "timed_device":
            return {}
        calls = len(request["sets"])
        held = request["held"] / 1e9
        self.now += held + calls * self.each
        wall = held + calls * self.each
        return {"ns": round(calls * self.told * 1e9), "wall": round(wall * 1e9),
                "host": 1000 * calls, "starved": False}  # fmt: skip

    def clock(self, pid):
        return Reading(self.now, None)

    def stop(self):
        pass

    go = stop


@pytest.fixture
def timed(tmp_path):
    def player(device, elements):
        made = DevicePlayer("candidate", device, 1, "cuda", device.clock)
        made.runner = SimpleNamespace(
            folder=tmp_path, signature=SimpleNamespace(func="f"), hold_form=lambda *_: None,
            manners=SimpleNamespace(static=False),
        )  # fmt: skip
        values = np.arange(float(elements))
        given = {"x": RawTensor.from_values(DTYPES["f32"], values.shape, values)}
        made.fresh, made.results = Fresh([given], [1], True), elements * 4
        made.stage(given, (), 1 << 30)
        return made

    def run(device, elements=1 << 14, rounds=5):
        made, ours = player(device, elements), player(Device(1e-5), elements)
        made.warm_up()
        made.rehearse(ours, lambda: None)
        for _ in range(rounds):
            made.turn(lambda: None, "cold", False)
        return made

    return run


def test_the_device_is_believed_where_the_commands_clock_agrees(timed):
    made = timed(Device(4e-5))
    assert made.doubts(1) == []
    assert spread(made.cold).median == pytest.approx(4e-5, rel=1e-3)
    assert spread(made.warm).median == pytest.approx(4e-5, rel=1e-3)
    clocks = made.clocks("cold")
    assert clocks["device"] == pytest.approx(clocks["command"], rel=0.02)
    assert clocks["process"] == pytest.approx(clocks["device"], rel=0.02)
    assert clocks["starved"] == 0


def test_work_after_the_second_event_is_refused(timed):
    made = timed(Device(4e-5, told=1e-5))
    assert made.doubts(1) and all(found.certain for found in made.doubts(1))


def test_work_when_results_are_asked_for_is_refused(timed):
    """20 us for each of the 128 that are given together; each on its own would not be seen."""
    made = timed(Device(4e-5, late=2e-5))
    assert made.doubts(1) and all(found.certain for found in made.doubts(1))


def test_sets_go_by_the_cache_and_repeat_none(timed):
    """16 KiB elements of 4 bytes: a set is 64 KiB, 128 with its results; the cache has 1 MiB."""
    device = Device(1e-3)
    made = timed(device)
    assert device.sets == 256  # calls of a batch
    assert made.near == 4  # half of the cache
    cold = [r["sets"] for what, r in device.log if what == "timed_device" and len(r["sets"]) > 4]
    in_order = [k for sets in cold for k in sets]
    assert all(b == (a + 1) % device.sets for a, b in pairwise(in_order))
    for what, request in device.log:
        if what == "timed_device":
            assert len(set(request["sets"])) == len(request["sets"]) == len(request["changes"])
            assert all([n for n, _, _ in rows] == [0] for rows in request["changes"])
            assert request.get("cold", False) == (len(request["sets"]) > 4)


def test_data_larger_than_the_cache_is_timed_in_few_batches_that_hold_the_device_shortly(timed):
    """512 KiB of inputs and of results: one set lies in half of 1 MiB, so that a batch on warm
    data is one call, which takes the host 1 us, and batches on cold data have 128 of 40 us."""
    device = Device(4e-5)
    made = timed(device, 1 << 17, rounds=1)
    assert made.near == 1
    timings = [r for what, r in device.log if what == "timed_device"]
    assert max(r["held"] for r in timings if len(r["sets"]) == 1) <= 1_010_000  # ns
    calls = [len(r["sets"]) for r in timings]
    warm = calls[len(calls) - calls[::-1].index(max(calls)) :]  # after the last cold batch
    assert set(warm) == {1} and len(warm) <= 20


TWIN = """
from tilefoundry.dsl import *
from tilefoundry.runtime import runtime_func, runtime_module
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget())
class Program:
    @func
    def f(x: Tensor[(8,), "f32"], y: Tensor[(8,), "f32"]):
        return x * y + x

@runtime_module(Program)
class Twin:
    @runtime_func
    def f(self, x, y):
        return x * y + x
"""


def test_each_call_of_a_batch_has_its_own_set_and_its_result_is_there(tmp_path, monkeypatch):
    """The child's side of a device, on memory of the processor: changes go to addresses."""
    monkeypatch.setattr("tilefoundry.judge.child.withhold", lambda: None)
    stream = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: stream)
    (tmp_path / "twin.py").write_text(TWIN)
    rng = np.random.default_rng(0)
    given = {name: RawTensor.from_values(DTYPES["f32"], (8,), rng.normal(size=8)) for name in "xy"}
    program = Program()
    program.open = open
    program.load(str(tmp_path / "twin.py"), "Twin.f", {})
    program.prepare({}, "cpu")
    log = []

    def timed(on, held, run, renewed, cold):
        log.append((on, held, cold))
        for to, base, mask, count, item, period in renewed:
            bits, flips = ((ctypes.c_uint32 * n).from_address(at)
                           for n, at in ((count, base), (period, mask)))  # fmt: skip
            made = np.array(bits) ^ np.resize(np.array(flips), count)
            ctypes.memmove(to, made.astype(np.uint32).tobytes(), count * item)
        run()
        return {"ns": 1, "wall": 2, "host": 1, "starved": False}

    program._clock = SimpleNamespace(time=timed)
    places = []
    for name, tensor in given.items():
        path = tmp_path / name
        path.write_bytes(tensor.view)
        places.append(place(str(path), 0, "f32", (8,)))
    program._reader = Reader("cpu")
    fresh = Fresh([given], [5], True)
    renewed = []
    for n, base in fresh.bases.items():
        rows = []
        for which, bits in (("base", base), ("mask", fresh.masks[n])):
            path = tmp_path / f"{n}.{which}"
            path.write_bytes(bits.tobytes())
            rows.append(place(str(path), 0, "i32", bits.shape))
        renewed.append([n, *rows])
    program.stage(places, 3, own=[0, 1], restored=[], renewed=renewed)
    for sets in ([0, 1, 2], [2, 0]):
        program.release()
        answer = program.timed_device(1000, sets, fresh.changes(len(sets)), True)
        assert answer["ns"] == 1 and log[-1] == (7, 1000, True)
        kept = list(program._results_kept)
        out = tmp_path / "out"
        out.write_bytes(b"")
        (places,) = zip(*program.results(str(out), range(len(sets)))["places"], strict=True)
        assert all(at == ["f32", [8], [1], 32] for at in places)
        got = np.fromfile(out, np.float32).reshape(len(sets), 8)
        for call in range(len(sets)):
            want = {name: t.values() for name, t in fresh.at(call).items()}
            want = (want["x"] * want["y"]).astype(np.float32) + want["x"].astype(np.float32)
            assert np.allclose(got[call], want, rtol=1e-6)
            assert program.look(call) == {}
        # what was given is spoiled; the others are as they were
        program.spoil([1])
        assert np.isnan(kept[1].numpy()).all() and not np.isnan(kept[0].numpy()).any()


def test_sets_take_what_memory_there_is():
    """Inputs and results of 32 MiB each, and 64 MiB from which inputs are renewed."""
    each, cache = 32 << 20, 50 << 20
    assert sets_of(each, each, cache, 24 << 30) == (256, 1)
    assert sets_of(each, each, cache, 4 << 30) == (63, 1)
    assert sets_of(each, each, cache, 128 << 20) == (1, 1)
    assert sets_of(4096, 0, 1 << 20, 1 << 30) == (256, 128)
    with pytest.raises(Refusal) as caught:
        sets_of(each, each, cache, 127 << 20)
    assert caught.value.diags[0].code == "measure-memory"


@pytest.mark.parametrize(
    ("low", "high", "ratio", "says"),
    [
        (0.99, 1.01, (1.1, 1.2), None),
        (0.90, 1.10, (1.1, 1.2), "spread by 20%"),
        (0.99, 1.01, (0.97, 1.05), "not told apart"),
    ],
)
def test_a_noisy_machine_is_said_to_be_one(low, high, ratio, says):
    found = SimpleNamespace(low=low, high=high, median=1.0)
    side = SimpleNamespace(who="candidate", data={"cold": found}, clocks={})
    report = SimpleNamespace(
        floors={"cold": None}, sides=[side],
        ratio={"cold": SimpleNamespace(low=ratio[0], high=ratio[1])},
    )  # fmt: skip
    noise = Report.noise(report)
    assert (says is None and noise == {}) or says in noise["cold"]
