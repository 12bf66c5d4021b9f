"""Who runs when: sides take turns, alone, cold before warm; and how inputs change."""

from collections import Counter
from types import SimpleNamespace

import numpy as np

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.player import Player, rounds
from tilefoundry.judge.tensor import RawTensor


class Logged(Player):
    """A side without a process: what it is asked, in order."""

    def __init__(self, name, log):
        self.log = lambda event: log.append(f"{name} {event}")
        self.pid, self.batches, self.turns = 0, {}, []
        self.child = SimpleNamespace(stop=lambda: self.log("stop"), go=lambda: self.log("go"))

    def make_ready(self):
        self.log("ready")

    def time_cold(self):
        self.log("cold")

    def time_warm(self, give):
        self.log("warm")
        if give is not None:
            give()

    def give(self, data, judged):
        self.log(f"gave {data}" + " judged" * judged)

    def compare(self, ours, evict):
        self.log(f"like {ours}")


def test_rounds_interleave():
    log = []
    sides = [Logged("a", log), Logged("b", log)]
    rounds(sides, "ours", 3, lambda: log.append("evict"), {1, 2}, list.reverse)
    cold = ["{} ready", "evict", "{} go", "{} cold", "{} gave cold", "{} warm"]
    warm = ["{} ready", "evict", "{} go", "{} cold", "{} warm", "{} gave warm"]
    wanted = ["a stop", "b stop"]
    for order, turn, judged in (("ab", cold, 0), ("ba", warm, 1), ("ab", cold, 1)):
        for name in order:
            gave = " judged" * judged
            wanted += [x.format(name) + gave * ("gave" in x) for x in turn] + [f"{name} stop"]
        wanted.append(f"{order[0]} like ours")
    assert log == [*wanted, "a go", "b go"]


def test_half_of_the_rounds_give_the_cold_call():
    log = []
    rounds([Logged("a", log)], "ours", 9, lambda: None, ())
    counts = Counter(log)
    assert sorted((counts["a gave cold"], counts["a gave warm"])) == [4, 5]


def test_caches_are_filled_while_both_stand_still():
    log, running = [], set()
    players = [Logged("a", log), Logged("b", log)]
    seen = []
    rounds(players, "ours", 2, lambda: log.append("evict"), {0})
    for event in log:
        name, _, what = event.partition(" ")
        if what == "go":
            running.add(name)
        elif what == "stop":
            running.discard(name)
        elif event == "evict":
            seen.append(set(running))
        elif what in ("ready", "like ours"):
            assert not running
        else:
            assert running == {name}
    assert seen == [set()] * 4


def tensors():
    values = {"x": ("f32", np.arange(64.0)), "i": ("i64", np.arange(5)), "e": ("f32", np.ones(1))}
    return {
        name: RawTensor.from_values(DTYPES[dtype], v.shape, v)
        for name, (dtype, v) in values.items()
    }


def test_every_call_changes_one_element_to_another_of_its_tensor():
    given = tensors()
    fresh = Fresh(given, [7], drawn=True)
    mirrors = [{name: bytearray(t.view) for name, t in given.items()} for _ in range(3)]
    sets = [0, 2, 0, 1] * 50
    seen = []
    for k, (n, at, data) in zip(sets, fresh.changes(sets), strict=True):
        name = list(given)[n]
        assert name == "x"  # floats change before indices, one element has no other
        mirrors[k][name][at : at + 4] = bytes.fromhex(data)
        seen.append({name: bytes(data) for name, data in mirrors[k].items()})
    for call in (0, 1, 77, 198, 199):
        now = fresh.at(call)
        assert {name: bytes(t.view) for name, t in now.items()} == seen[call]
    assert set(now["x"].values()) < set(given["x"].values())
    assert Counter(given["x"].values()) == Counter(tensors()["x"].values())


def test_a_later_batch_goes_on_from_the_last():
    fresh = Fresh({"x": tensors()["x"]}, [3], drawn=True)
    fresh.changes([0] * 30)
    before = fresh.at(29)["x"].values()
    ((_, at, data),) = fresh.changes([0])
    before[at // 4] = np.frombuffer(bytes.fromhex(data), np.float32)[0]
    assert np.array_equal(fresh.at(0)["x"].values(), before)


def test_indices_change_only_where_they_were_drawn():
    given = {"i": tensors()["i"]}
    assert Fresh(given, [1], drawn=False).changes([0, 0]) == [(0, 0, "")] * 2
    (n, at, data), *_ = Fresh(given, [1], drawn=True).changes([0])
    assert n == 0 and at % 8 == 0 and len(data) == 16
