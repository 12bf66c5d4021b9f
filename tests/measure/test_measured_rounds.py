"""Who runs when: sides take turns, alone, cold before warm; and how inputs change."""

from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.draw import draw
from tilefoundry.judge.measure.clock import Reading
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.player import Player, rounds
from tilefoundry.judge.measure.window import BLOCK, Window
from tilefoundry.judge.tensor import RawTensor


class Logged(Player):
    """A side without a process: what it is asked, in order."""

    def __init__(self, name, log):
        self.log = lambda event: log.append(f"{name} {event}")
        self.pid, self.batches, self.turns, self.asides = 0, {}, [], []
        self.clock = lambda pid: Reading(0.0, None)
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


def windows(fresh, n):
    """What a tensor holds in a call: computed here element by element."""
    base, mask = fresh.bases[n], fresh.masks.get(n)
    for rows in fresh.batch:
        (found,) = [(at, flip) for m, at, flip in rows if m == n]
        at, flip = found
        yield [int(base[at + i]) ^ (0 if mask is None else int(mask[flip + i % BLOCK]))
               for i in range(fresh.data[n].size)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "fp8e4m3", "fp8e5m2", "f8e8m0"])
def test_every_element_of_every_call_is_another(dtype):
    kind = DTYPES[dtype]
    drawn = [{"x": draw(np.random.default_rng(n), kind, (4, 500))} for n in (1, 2)]
    fresh = Fresh(drawn, [7], drawn=True)
    fresh.changes(4)
    seen = []
    for call, wanted in enumerate(windows(fresh, 0)):
        now = fresh.at(call)["x"]
        assert (now.dtype, now.shape) == (kind, (4, 500))
        assert now.flat.view(f"u{now.flat.itemsize}").tolist() == wanted
        assert now.is_finite and np.abs(now.values()).max() < 8 * 4
        seen.append(now.values())
    for a, b in combinations(seen, 2):  # of 8 bits, many are equal by chance
        assert np.mean(a == b) < (0.3 if kind.bits == 8 else 0.02)
        assert np.linalg.norm(a - b) > 0.5 * np.linalg.norm(a)
    if kind.bits > 8:  # nothing on the way is slow, or no number
        assert np.abs(np.concatenate(seen)).min() > 0


def test_a_window_in_a_process_is_what_the_command_knows():
    drawn = [{"x": draw(np.random.default_rng(n), DTYPES["f32"], (3, 7001))} for n in (1, 2)]
    fresh = Fresh(drawn, [7], drawn=True)
    (rows,) = fresh.changes(1)
    target = np.zeros(21003, np.int32)
    held = [torch.from_numpy(bits.view(np.int32)) for bits in (fresh.bases[0], fresh.masks[0])]
    window = Window(torch.from_numpy(target), *held).arrays()
    window.renew(np.bitwise_xor, *rows[0][1:])
    assert np.array_equal(target, fresh.at(0)["x"].flat.view(np.int32))


def test_values_of_a_file_turn_round():
    x = RawTensor.from_values(DTYPES["f32"], (64,), np.arange(64.0))
    fresh = Fresh([{"x": x}], [1], drawn=False)
    ((_, at, mask),) = fresh.changes(1)[0]
    assert mask == 0 and fresh.at(0)["x"].values().tolist() == np.roll(np.arange(64), -at).tolist()


def test_indices_change_only_where_they_were_drawn():
    given = {"i": tensors()["i"]}
    assert Fresh([given], [1], drawn=False).changes(2) == [[], []]
    fresh = Fresh([given], [1], drawn=True)
    ((n, at, _),) = fresh.changes(1)[0]
    assert n == 0 and 0 <= at < 5 and set(fresh.at(0)["i"].values()) <= set(range(5))
    assert [row[0] for row in Fresh([tensors()], [1], drawn=True).changes(1)[0]] == [0]
