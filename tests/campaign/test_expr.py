"""Index expressions against Python's own integers, over all small values."""

from __future__ import annotations

import itertools
import math
import operator
import random

from campaign_profile import campaign
from hypothesis import given
from hypothesis import strategies as st

from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Expr, IterVar, LoopVar, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord

SYMBOLS: tuple[Sym, ...] = (
    Sym("a", 0, 3),
    Sym("b", -2, 2),
    LoopVar("k", 0, 8, 4),
    LoopVar("k", 1, 3),  # a namesake
    OpenDim("n", 1, 3),
    Coord("x", 0, 2, axis=Axis("cta", "x", 3, 1)),
    IterVar("i", 0, 2),
)
VALUES = [range(int(s.lo), int(s.hi) + 1, s.multiple) for s in SYMBOLS]
EVERY = list(itertools.product(*VALUES))
random.Random(0).shuffle(EVERY)
ENVIRONMENTS = [dict(zip(SYMBOLS, values, strict=True)) for values in EVERY[:200]]

SYMBOLIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": ix.floordiv,
    "%": ix.mod,
    "min": ix.minimum,
    "max": ix.maximum,
}
PYTHON = SYMBOLIC | {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}

leaves = st.one_of(st.integers(-6, 9), st.sampled_from(SYMBOLS))
positive = st.one_of(st.integers(1, 8), st.sampled_from([SYMBOLS[3], SYMBOLS[4]]))
divisors = st.one_of(positive, st.integers(-5, -1))


def grown(inner):
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, divisors),
    )


trees = st.recursive(leaves, grown, max_leaves=8)


def symbolic(tree):
    """The expression that a tree builds."""
    if isinstance(tree, tuple):
        word, a, b = tree
        return SYMBOLIC[word](symbolic(a), symbolic(b))
    return tree.expr() if isinstance(tree, Sym) else tree


def direct(tree, env):
    """The integer that a tree means, by Python's arithmetic."""
    if isinstance(tree, tuple):
        word, a, b = tree
        return PYTHON[word](direct(a, env), direct(b, env))
    return env[tree] if isinstance(tree, Sym) else tree


def used(tree):
    if isinstance(tree, tuple):
        return used(tree[1]) | used(tree[2])
    return {tree} if isinstance(tree, Sym) else set()


def environments(tree, most=60):
    """All values of the symbols that occur, up to ``most``."""
    mine = used(tree)
    seen = {}
    for env in ENVIRONMENTS:
        seen.setdefault(tuple(env[s] for s in SYMBOLS if s in mine), env)
    return list(seen.values())[:most]


@campaign(150, 3000)
@given(trees)
def test_canonical_form_keeps_the_value(tree):
    x = symbolic(tree)
    for env in environments(tree):
        assert ix.evaluate(x, env) == direct(tree, env)


@campaign(150, 3000)
@given(trees)
def test_bounds_hold_every_value(tree):
    x = symbolic(tree)
    lo, hi = ix.bounds(x)
    unit = ix.multiple_of(x)
    for env in environments(tree):
        value = direct(tree, env)
        assert lo <= value <= hi
        assert value == 0 if unit == 0 else value % unit == 0


@campaign(100, 2000)
@given(trees, st.dictionaries(st.sampled_from(SYMBOLS), leaves, max_size=4))
def test_substitution_commutes_with_evaluation(tree, replaced):
    new = {s: symbolic(t) for s, t in replaced.items()}
    x = symbolic(tree)
    positive_stay = all(ix.bounds(new[s])[0] > 0 for s in (SYMBOLS[3], SYMBOLS[4]) if s in new)
    if not positive_stay:
        return  # a divisor may become zero
    after = ix.substitute(x, new)
    for env in ENVIRONMENTS[:60]:
        inner = {**env, **{s: ix.evaluate(t, env) for s, t in new.items()}}
        if not all(s.lo <= inner[s] <= s.hi and inner[s] % s.multiple == 0 for s in new):
            continue  # outside what the symbol promises
        assert ix.evaluate(after, env) == ix.evaluate(x, inner)


@campaign(100, 2000)
@given(trees)
def test_rendered_text_is_python(tree):
    x = symbolic(tree)
    names = {s: f"s{n}" for n, s in enumerate(SYMBOLS)}
    code = compile(ix.render(x, names.__getitem__), "x", "eval")
    for env in environments(tree):
        assert eval(code, {names[s]: v for s, v in env.items()}) == direct(tree, env)


@campaign(150, 3000)
@given(trees)
def test_rendered_text_builds_the_same_expression(tree):
    x = symbolic(tree)
    names = {s: f"s{n}" for n, s in enumerate(SYMBOLS)}
    scope = {name: s.expr() for s, name in names.items()}
    scope |= {"min": ix.minimum, "max": ix.maximum}
    assert eval(ix.render(x, names.__getitem__), scope) == x


@campaign(100, 2000)
@given(st.lists(trees, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_equal_sums_compare_equal(parts, rng):
    terms = [symbolic(p) for p in parts]
    total = sum(terms[1:], terms[0])
    order = list(terms)
    rng.shuffle(order)
    at = rng.randrange(1, len(order))
    again = sum(order[:at], 0) + sum(order[at:], 0)
    assert again == total
    assert hash(again) == hash(total)
    assert total - again == 0


@campaign(100, 2000)
@given(trees, trees, trees)
def test_products_distribute(a, b, c):
    x, y, z = symbolic(a), symbolic(b), symbolic(c)
    assert (x + y) * z == x * z + y * z
    assert x * y == y * x
    assert x * (y * z) == (x * y) * z


@campaign(100, 2000)
@given(trees, positive)
def test_quotient_and_remainder(tree, divisor):
    x, d = symbolic(tree), symbolic(divisor)
    quotient, rest = x // d, x % d
    lo, hi = ix.bounds(rest)
    assert lo >= 0 and hi <= ix.bounds(d)[1] - 1
    for env in environments(("+", tree, divisor)):
        q, r = divmod(direct(tree, env), direct(divisor, env))
        assert (ix.evaluate(quotient, env), ix.evaluate(rest, env)) == (q, r)


A, B, K, J, N, X, I = (s.expr() for s in SYMBOLS)  # noqa: E741


def test_exact_parts_leave_the_floor():
    assert (8 * A + 4 * B) // 4 == 2 * A + B
    assert (8 * A + 4 * B) % 4 == 0
    assert (4 * B + A) // 4 == B  # 0 <= A < 4
    assert (4 * B + A) % 4 == A
    assert (4 * A + 7) // 4 == A + 1
    assert (N * A) // N == A
    assert (N * A) % N == 0
    assert (2 * N) // N == 2
    assert K % 4 == 0  # every value is a multiple
    assert K % 2 == 0


def test_what_does_not_divide_stays():
    assert (6 * A) // 4 == (3 * A) // 2
    assert isinstance((6 * A) // 4, Expr)
    assert (6 * A) % 4 != 0
    assert ix.evaluate((6 * A) % 4, {SYMBOLS[0]: 1}) == 2
    assert (A + 1) // 4 != 0
    assert (2 * B + 1) // 2 == B


def test_floors_of_floors_and_remainders_of_remainders():
    t = Sym("t", 0, 10_000).expr()
    assert t // 3 // 5 == t // 15
    assert t % 12 % 4 == t % 4
    assert (t // 16) % 68 == (t // 16) % 68
    assert ix.bounds(t % 16) == (0, 15)


def test_rounding_up():
    assert ix.ceildiv(7, 2) == 4
    assert ix.ceildiv(8 * N, 4) == 2 * N
    for n in range(1, 4):
        got = ix.evaluate(ix.ceildiv(5 * N, 3), {SYMBOLS[4]: n})
        assert got == math.ceil(5 * n / 3)


def test_bounds_decide_extremes():
    assert ix.minimum(A, 3) == A
    assert ix.minimum(A, 0) == 0
    assert ix.maximum(A, A + 1) == A + 1
    assert ix.minimum(A, B) == ix.minimum(B, A)


def test_open_extents_are_equal_by_name_and_range():
    again = OpenDim("n", 1, 3).expr()
    assert again == N
    assert OpenDim("n", 1, 4).expr() != N
    assert OpenDim("n", 1, 4).expr() + N == N + OpenDim("n", 1, 4).expr()


def test_namesakes_differ():
    assert K != J
    assert K + J == J + K
    assert K // 3 + J // 3 == J // 3 + K // 3
