"""Slots and phases counted along a loop are those that division gives, in every turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilefoundry.ir.expr import Sym, floordiv, mod, substitute
from tilefoundry.targets.cuda.emit.rings import rings
from tilefoundry.tir.program import Advance, Counter, For, Sync


def loop(count, slots, ahead, later, turns, step=1, start=0, unroll=False, more=()):
    k = Sym("k", 0, 10**6)
    e = count(k)
    body = (
        Sync("wait", slot=mod(e, slots), parity=mod(floordiv(e, slots) + later, 2)),
        Sync("arrive", slot=mod(e + ahead, slots)),
        *more,
    )
    made = For(k, start, start + turns * step, step, body, unroll=unroll)
    return made, body, e, k


@given(
    slots=st.sampled_from([3, 5, 6, 7]),
    ahead=st.integers(-9, 9),
    later=st.integers(0, 3),
    turns=st.integers(1, 25),
    step=st.sampled_from([1, 16, 64]),
    before=st.integers(0, 100),
)
def test_they_go_round_as_division_does(slots, ahead, later, turns, step, before):
    made, body, _, k = loop(
        lambda k: floordiv(k.expr(), step) + before, slots, ahead % slots, later, turns, step
    )
    (ring,) = rings(made, body)
    slot, phase = ring.first(made)
    assert len(ring.later) == 1 and len(ring.ahead) == (2 if ahead % slots else 1)
    for n in range(turns):
        count = n + before
        for x, steps in ring.ahead:
            assert substitute(x, {k: n * step}) == (slot + steps) % slots
        for x, odd in ring.later:
            assert substitute(x, {k: n * step}) == phase ^ odd == (count // slots + later) % 2
        slot = slot + 1 if slot < slots - 1 else 0  # what tf_next does
        phase ^= slot == 0


def test_what_does_not_go_on_by_one_is_divided_out():
    assert not rings(*loop(lambda k: k.expr() * 2, 3, 1, 0, 9)[:2])
    assert not rings(*loop(lambda k: floordiv(k.expr(), 64), 3, 1, 0, 9, step=32)[:2])
    assert not rings(*loop(lambda k: k.expr(), 3, 1, 0, 9, unroll=True)[:2])
    assert not rings(*loop(lambda k: k.expr(), 4, 1, 0, 9)[:2])


def test_a_count_that_the_loop_moves_otherwise_is_divided_out():
    counter = Counter("n", 0, 1000)
    assert not rings(*loop(lambda k: k.expr() + counter.expr(), 3, 1, 0, 9,
                           more=(Advance(counter, 1),))[:2])  # fmt: skip
    assert rings(*loop(lambda k: k.expr() + counter.expr(), 3, 1, 0, 9)[:2])
