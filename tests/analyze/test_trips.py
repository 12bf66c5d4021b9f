"""Trips: summed over units exactly, by brute force and by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tilefoundry.analyze import trips as subject
from tilefoundry.analyze.figure import Binding, Figure, Undecidable
from tilefoundry.analyze.sums import largest, summed
from tilefoundry.analyze.trips import trips
from tilefoundry.diag import Refusal
from tilefoundry.ir.expr import LoopVar, OpenDim, bounds, minimum, substitute
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Block, Loop

FREE = Binding({})


def axis(extent, name="p", stride=1):
    return Axis("cta", name, extent, stride)


def coordinate(a):
    return Coord(a.name, 0, a.extent - 1, axis=a).expr()


def loop(name, start, stop, step=1):
    low, high = bounds(start)[0], bounds(stop)[1] - 1
    return Loop(LoopVar(name, low, max(low, high)), start, stop, step, (), Block(()))


def test_persistent_tasks():
    # 4352 tasks over 132 units: every task once; 4352 = 32 * 132 + 128, so the first 128
    # units run 33 and the other four 32.
    p = axis(132)
    made = trips([loop("task", coordinate(p), 4352, 132)], FREE)
    assert made.total([p]) == 4352
    assert made.most == 33
    assert [made.at({p: i}) for i in (0, 127, 128, 131)] == [33, 33, 32, 32]


def test_a_loop_inside_multiplies():
    p = axis(132)
    k = loop("k", 0, 5120, 64)
    made = trips([loop("task", coordinate(p), 4352, 132), k], FREE)
    assert made.total([p]) == 4352 * 80
    assert made.most == 33 * 80


def test_units_that_do_not_change_the_count_multiply():
    p, t = axis(4), axis(32, "t")
    made = trips([loop("i", coordinate(p), 8, 4)], FREE)
    assert made.total([p, t]) == 8 * 32


def test_triangular():
    # sum over i < 8 of (i + 1) = 36
    i = loop("i", 0, 8)
    assert trips([i, loop("j", 0, i.var.expr() + 1)], FREE).every == 36


def test_triangular_over_units():
    # unit p runs i = p, p + 4: (p + 1) + (p + 5) steps of j; 36 in all, most for p = 3: 12
    p = axis(4)
    i = loop("i", coordinate(p), 8, 4)
    made = trips([i, loop("j", 0, i.var.expr() + 1)], FREE)
    assert made.total([p]) == 36
    assert [made.at({p: n}) for n in range(4)] == [6, 8, 10, 12]
    assert made.most == 12


def test_no_trip():
    assert trips([loop("i", 5, 5)], FREE).every == 0
    p = axis(4)
    made = trips([loop("i", coordinate(p), 2, 4)], FREE)
    assert made.total([p]) == 2
    assert [made.at({p: n}) for n in range(4)] == [1, 1, 0, 0]


def test_downwards():
    assert trips([loop("i", 10, 0, -3)], FREE).every == 4  # 10, 7, 4, 1


def test_open_extent_stays_symbolic():
    n = OpenDim("N", 0, 100)
    made = trips([loop("i", 0, n.expr(), 1)], FREE)
    assert made.every == n.expr()
    assert trips([loop("i", 0, n.expr(), 1)], Binding({n: 7})).every == 7


def test_open_persistent_loop():
    # range(p, N, 4) over p = 0..3 covers 0..N-1 once, whatever N is
    n, p = OpenDim("N", 1, 1000), axis(4)
    made = trips([loop("i", coordinate(p), n.expr(), 4)], FREE)
    assert made.total([p]) == n.expr()
    assert str(made.most) == "-((-N) // 4)"


def test_open_loop_with_other_starts_is_undecided():
    n, p = OpenDim("N", 1, 1000), axis(4)
    with pytest.raises(Undecidable, match="N"):
        trips([loop("i", coordinate(p) * 2, n.expr(), 4)], FREE)


def test_open_triangle_is_undecided():
    n = OpenDim("N", 1, 1000)
    i = loop("i", 0, n.expr())
    with pytest.raises(Undecidable, match="N"):
        trips([i, loop("j", 0, i.var.expr())], FREE)


def test_too_many_points(monkeypatch):
    monkeypatch.setattr(subject, "LIMIT", 100)
    i = loop("i", 0, 1000)
    with pytest.raises(Refusal) as caught:
        trips([i, loop("j", 0, i.var.expr())], FREE)
    assert caught.value.diags[0].code == "analysis-too-large"
    assert caught.value.exit == 3


def test_long_independent_loops_are_not_enumerated():
    nest = [loop(f"i{n}", 0, 10**6) for n in range(5)]
    assert trips(nest, FREE).every == 10**30


@st.composite
def nests(draw):
    """Up to three loops over a 2-axis mesh, bounds affine in coordinates and outer vars;
    as loops and as Python text."""
    sizes = draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    p, q = axis(sizes[0], "p", sizes[1]), axis(sizes[1], "q")
    known = {"p": coordinate(p), "q": coordinate(q)}
    loops, texts = [], []
    for name in ("i", "j", "k")[: draw(st.integers(1, 3))]:
        bounds, words = [], []
        for _ in range(2):
            c = draw(st.integers(0, 4))
            other = draw(st.sampled_from(["", *known]))
            factor = draw(st.integers(1, 2))
            bounds.append(c + (known[other] * factor if other else 0))
            words.append(f"{c}" + (f"+{other}*{factor}" if other else ""))
        step = draw(st.integers(1, 3))
        made = loop(name, bounds[0], bounds[1], step)
        loops.append(made)
        texts.append((name, f"range({words[0]},{words[1]},{step})"))
        known[name] = made.var.expr()
    return (p, q), loops, texts


def run(texts, env):
    """Steps of the innermost loop, by running the loops."""
    if not texts:
        return 1
    (name, text), *rest = texts
    return sum(run(rest, {**env, name: v}) for v in eval(text, {}, env))


@limits(max_examples=60, deadline=None)
@given(nests())
def test_against_running_the_loops(made):
    (p, q), loops, texts = made
    found = trips(loops, FREE)
    expected = {
        (a, b): run(texts, {"p": a, "q": b})
        for a, b in itertools.product(range(p.extent), range(q.extent))
    }
    assert found.total([p, q]) == sum(expected.values())
    assert {k: found.at({p: k[0], q: k[1]}) for k in expected} == expected
    assert max(expected.values()) == max(found.at({p: a, q: b}) for a, b in expected)


def points(texts, env):
    """Values of all variables at every step of the innermost loop, by running the loops."""
    if not texts:
        return [env]
    (name, text), *rest = texts
    return [at for v in eval(text, {}, env) for at in points(rest, {**env, name: v})]


def runs(texts, env):
    """Whether every loop makes a step whenever it is come to."""
    if not texts:
        return True
    (name, text), *rest = texts
    steps = eval(text, {}, env)
    return bool(steps) and all(runs(rest, {**env, name: v}) for v in steps)


@st.composite
def amounts(draw):
    """A nest, and an amount that depends on its variables and the coordinates, as an
    expression and as text: a sum of products of shortened tiles and plain numbers."""
    axes, loops, texts = draw(nests())
    known = {a.name: coordinate(a) for a in axes} | {x.var.name: x.var.expr() for x in loops}
    amount, words = 0, []
    for _ in range(draw(st.integers(1, 3))):
        term, word = draw(st.integers(1, 3)), ""
        word = str(term)
        for name in draw(st.lists(st.sampled_from([*known]), min_size=1, max_size=2)):
            end, tile = draw(st.integers(0, 12)), draw(st.integers(1, 5))
            term = term * minimum(end - known[name], tile)
            word += f"*min({end}-{name},{tile})"
        amount = amount + term
        words.append(word)
    return axes, loops, texts, amount, "+".join(words)


@limits(max_examples=120, deadline=None)
@given(amounts())
def test_amounts_against_running_the_loops(made):
    (p, q), loops, texts, amount, text = made
    each = {
        (a, b): [eval(text, {"min": min}, at) for at in points(texts, {"p": a, "q": b})]
        for a, b in itertools.product(range(p.extent), range(q.extent))
    }
    found = summed(loops, FREE, amount)
    assert found.precision == "exact"
    assert found.total([p, q]) == sum(map(sum, each.values()))
    for (a, b), values in each.items():
        one = sum(share * times.at({p: a, q: b}) for share, times in found.parts)
        assert one == sum(values)
    most = largest(loops, FREE, amount)
    every = [x for values in each.values() for x in values]
    assert not every or most.figure.value >= max(every)
    if all(runs(texts, {"p": a, "q": b}) for a, b in each):
        assert most.figure == Figure(max(every))
        assert substitute(amount, most.at) == most.figure.value


def test_a_last_tile_that_is_smaller_counts_what_it_has(program):
    # 1000 columns in tiles of 300: 300, 300, 300, 100. Each is read once, by each of 8 CTAs
    # where it is brought to their own storage; a tile takes 256 * 300 * 4 B at most.
    body = """
    @func
    def f(x: Tensor[(256, 1000), "f32"]):
        acc = tf.zeros(Tensor[(256, 1), "f32"])
        for i in range(2):
            for k in tf.tile(1000, 300):
                acc = acc + tf.reduce(tf.exp(x[:, k]), (1,), True, "sum")
        return acc
    """
    case = program(body)
    priced = case.priced()
    assert priced.cost["special", "f32"].executed.value == 2 * 256 * 1000
    assert priced.cost["float", "f32"].executed.value == 2 * (256 * 1000 + 4 * 256)
    (exp,) = [m for m in priced.traffic.moves if m.value.op.name == "slice"]
    assert exp.executed.value == 2 * 256 * 1000 * 4
    (peak,) = priced.peaks
    # x, acc, exp of one tile, its sum
    assert peak.amount.value == 256 * 4 * (1000 + 1 + 300 + 1)
    assert not case.report("compute-cost", "memory").undecided
