"""Steps of different sizes: amounts add up over the steps, peaks are of the largest, and no
figure names a loop variable. All numbers by hand."""

import pytest

from tilefoundry.analyze.report import analyze
from tilefoundry.diag import Refusal
from tilefoundry.ir.expr import Expr, LoopVar, symbols
from tilefoundry.lang.load import load_source

ALL = ("compute-cost", "memory", "roofline")

STAGED = """
@func
def f(x: Tensor[(8, {extent}), "f32"]):
    with Mesh(("cta",), layout=(8,), names=("c",)) as cta:
        acc = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
        for j in tf.tile({extent}, 64):
            s = tf.reshard(x[cta.c:cta.c + 1, j], storage="smem")
            acc = acc + tf.reshard(tf.reduce(s, (1,), keepdim=True), storage="rmem")
        o = tf.reshard(acc, storage="gmem")
        return tf.insert_slice(tf.empty(Tensor[(8, 1), "f32"]), o, (cta.c, 0))
"""
OPEN = 'n = DimVar("n", 1, 4096)\n'


def figures(report):
    lines = [*report.head, *(fact for row in report.rows for fact in row.facts)]
    return [(line, item) for line in lines for item in line.items]


def no_loop_variable(report):
    for line, item in figures(report):
        value = item.value
        held = symbols(value) if isinstance(value, Expr) else ()
        assert not any(isinstance(s, LoopVar) for s in held), line.text()


def judged(case, **dims):
    """(gmem read, smem read, smem peak, operations executed, of one CTA, x's footprint)."""
    priced = case.priced(**dims)
    peak = {p.storage.name: p.amount for p in priced.peaks}["smem"]
    cost = priced.cost["float", "f32"]
    footprint = priced.compulsory[0]["x"]
    found = (
        priced.moved("gmem", "read")[1],
        priced.moved("smem", "read")[1],
        peak,
        cost.executed,
        cost.per_unit,
        footprint,
    )
    assert all(x.precision == "exact" for x in found)
    return tuple(x.value for x in found)


# 8 CTAs walk a row each: 15 tiles of 64 and one of 40 make 1000; 16 of 64 make 1024. A CTA
# keeps a tile and its sum of 4 B; it adds each element once and each tile's sum once.
RAGGED = (8 * 1000 * 4, 8 * 1000 * 4 + 8 * 16 * 4, 64 * 4 + 4, 8 * 1016, 1016, 32000)
EVEN = (8 * 1024 * 4, 8 * 1024 * 4 + 8 * 16 * 4, 64 * 4 + 4, 8 * 1040, 1040, 32768)
SHORT = (8 * 40 * 4, 8 * 40 * 4 + 8 * 4, 40 * 4 + 4, 8 * 41, 41, 1280)


@pytest.mark.parametrize("extent, right", [(1000, RAGGED), (1024, EVEN), (40, SHORT)])
def test_the_last_tile_is_what_is_left(program, extent, right):
    constant = program(STAGED.format(extent=extent), cta=8)
    bound = program(STAGED.format(extent="n"), cta=8, before=OPEN)
    assert judged(constant) == right
    assert judged(bound, n=extent) == right
    for report in (constant.report(*ALL), bound.report(*ALL, n=extent)):
        no_loop_variable(report)
        assert (report.exit, report.undecided) == (0, [])


def test_tiles_of_an_open_extent_add_up_to_it(program):
    case = program(STAGED.format(extent="n"), cta=8, before=OPEN)
    priced = case.priced()
    read = priced.moved("gmem", "read")[1]
    assert (str(read.value), read.precision) == ("32 * n", "exact")
    peak = {p.storage.name: p.amount for p in priced.peaks}["smem"]
    assert (str(peak.value), peak.precision) == ("4 * min(64, n) + 4", "exact")
    for families in (("roofline",), ALL):
        report = case.report(*families)
        no_loop_variable(report)
        assert report.exit == 3
        assert all("open extents" in why for why in report.undecided)


def test_a_tile_twice_in_one_amount_is_bounded_where_it_is_open(program):
    # tile x tile: 15 * 64 * 64 + 40 * 40 = 63040 elements of 1000; 64 n at most of n
    body = """
    @func
    def f(x: Tensor[({extent}, {extent}), "f32"]):
        acc = tf.zeros(Tensor[(1, 1), "f32"])
        for j in tf.tile({extent}, 64):
            acc = acc + tf.reduce(tf.exp(x[j, j]), (0, 1), keepdim=True)
        return acc
    """
    made = program(body.format(extent=1000)).priced().cost["special", "f32"].executed
    assert (made.value, made.precision) == (63040, "exact")
    case = program(body.format(extent="n"), before=OPEN)
    made = case.priced().cost["special", "f32"].executed
    assert (str(made.value), made.precision) == ("64 * n", "upper_bound")
    assert case.priced(n=1000).cost["special", "f32"].executed.value == 63040
    no_loop_variable(case.report(*ALL))


def test_ragged_tiles_of_two_axes(program):
    # 100 rows in tiles of 30 (30 30 30 10) and 70 columns in tiles of 32 (32 32 6): each
    # element once, each of 12 tiles' sums once; the fullest tile is 30 x 32.
    body = """
    @func
    def f(x: Tensor[(100, 70), "f32"]):
        acc = tf.zeros(Tensor[(1, 1), "f32"])
        for i in tf.tile(100, 30):
            for j in tf.tile(70, 32):
                acc = acc + tf.reduce(tf.exp(x[i, j]), (0, 1), keepdim=True)
        return acc
    """
    case = program(body)
    priced = case.priced()
    assert priced.cost["special", "f32"].executed.value == 7000
    assert priced.cost["float", "f32"].executed.value == 7000 + 12
    (read,) = [m for m in priced.traffic.moves if m.value.op.name == "slice"]
    assert read.executed.value == 28000
    assert priced.compulsory[0]["x"].value == 28000
    (peak,) = priced.peaks
    assert peak.amount.value == 28000 + 4 + 30 * 32 * 4 + 4
    no_loop_variable(case.report(*ALL))


def test_parts_that_grow_with_a_loop(program):
    # columns 0..i for i = 1, 2, 3, 4: 10 columns of 8 in all, 4 at most, 4 distinct.
    body = """
    @func
    def f(x: Tensor[(8, 1000), "f32"]):
        acc = tf.zeros(Tensor[(8, 1), "f32"])
        for i in range(1, 5):
            acc = acc + tf.reduce(tf.exp(x[:, 0:i]), (1,), keepdim=True)
        return acc
    """
    case = program(body)
    priced = case.priced()
    assert priced.cost["special", "f32"].executed.value == 80
    (read,) = [m for m in priced.traffic.moves if m.value.op.name == "slice"]
    assert read.executed.value == 320
    assert priced.compulsory[0]["x"].value == 128
    (peak,) = priced.peaks
    assert peak.amount.value == 32000 + 32 + 128 + 32  # x, acc, exp, its sum
    no_loop_variable(case.report(*ALL))


def test_units_with_parts_of_their_own_size(program):
    # CTA c of 4 takes rows c, c + 4 of 8 and c + 1 columns in two tiles of each row's loop:
    # for i in range(c, 8, 4), x[i, 0:i + 1]: i + 1 columns, 36 in all; CTA 3 does 4 + 8.
    body = """
    @func
    def f(x: Tensor[(8, 8), "f32"]):
        out = tf.empty(Tensor[(8, 1), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            for i in range(cta.c, 8, 4):
                s = tf.exp(tf.reshard(x[i:i + 1, 0:i + 1], storage="rmem"))
                out = tf.insert_slice(out, tf.reduce(s, (1,), keepdim=True), (i, 0))
        return out
    """
    case = program(body, cta=4)
    cost = case.priced().cost["special", "f32"]
    assert (cost.executed.value, cost.per_unit.value) == (36, 12)
    assert case.priced().moved("gmem", "read")[1].value == 36 * 4
    no_loop_variable(case.report(*ALL))


def test_a_callee_of_a_ragged_tile(program):
    # g adds n columns of 8 rows in tiles of 16. Called on 15 tiles of 64 and one of 40, it
    # makes 15 * 4 + 3 = 63 steps; the largest call keeps acc, 16 columns and their sum.
    body = """
    @func
    def f(x: Tensor[(8, 1000), "f32"]):
        acc = tf.zeros(Tensor[(8, 1), "f32"])
        for j in tf.tile(1000, 64):
            acc = acc + g(x[:, j])
        return acc

    @func
    def g(y: Tensor[(8, n), "f32"]):
        acc = tf.zeros(Tensor[(8, 1), "f32"])
        for k in tf.tile(n, 16):
            acc = acc + tf.reduce(tf.exp(y[:, k]), (1,), keepdim=True)
        return acc
    """
    case = program(body, before=OPEN)
    priced = case.priced()
    assert priced.cost["special", "f32"].executed.value == 8000
    assert priced.cost["float", "f32"].executed.value == 8000 + 8 * 63 + 8 * 16
    (peak,) = priced.peaks
    assert peak.amount.value == 32000 + 32 + 32 + 8 * 16 * 4 + 32
    report = case.report(*ALL)
    no_loop_variable(report)
    (call,) = [
        fact.record() for row in report.rows for fact in row.facts
        if fact.record().get("call") == "g" and fact.record()["kind"] == "special.f32"
    ]  # fmt: skip
    assert call["executed"] == 8000


def test_too_many_uneven_steps_are_refused_not_guessed(program):
    body = """
    @func
    def f(x: Tensor[(8, 8), "f32"]):
        acc = tf.zeros(Tensor[(1, 1), "f32"])
        for i in range(3000):
            for j in range(3000):
                acc = acc + tf.reduce(x[0:1, 0:(i * j) % 7 + 1], (1,), keepdim=True)
        return acc
    """
    with pytest.raises(Refusal) as caught:
        program(body).report("compute-cost")
    assert caught.value.diags[0].code == "analysis-too-large"


ATTEND = """
@func
def f(q: Tensor[(4, 64), "f32"], k: Tensor[(n, 64), "f32"], v: Tensor[(n, 64), "f32"]):
    with Mesh(("cta",), layout=(4,), names=("h",)) as cta:
        qs = tf.reshard(q[cta.h:cta.h + 1], storage="smem")
        acc = tf.zeros(Tensor[(1, 64), "f32", "rmem"])
        for j in tf.tile(n, 48):
            ks = tf.reshard(k[j], storage="smem")
            s = tf.exp(tf.matmul(qs, ks, b_layout="NK"))
            acc = acc + tf.matmul(s, tf.reshard(v[j], storage="smem"))
        o = tf.reshard(acc, storage="gmem")
        return tf.insert_slice(tf.empty(Tensor[(4, 64), "f32"]), o, (cta.h, 0))
"""
ROWS = """
@func
def f(x: Tensor[(n, 64), "f32"], w: Tensor[(64,), "f32"]):
    y = g(x * w)
    return tf.softmax(y, 1) + y

@func
def g(y: Tensor[(n, 64), "f32"]):
    out = tf.zeros(Tensor[(n, 64), "f32"])
    for i in tf.tile(n, 100):
        out = tf.insert_slice(out, tf.exp(y[i]), (i.start, 0))
    return out
"""


@pytest.mark.parametrize("dims", [{}, {"n": 1}, {"n": 1000}, {"n": 1024}])
@pytest.mark.parametrize("families", [(), *((x,) for x in ALL), ALL])
@pytest.mark.parametrize("body, cta", [(STAGED.format(extent="n"), 8), (ATTEND, 4), (ROWS, None)])
def test_the_truth_of_an_expression_is_never_asked(program, monkeypatch, body, cta, families, dims):
    loaded = load_source(program(body, cta=cta, before=OPEN).path, None, {})

    def truth(self):
        raise AssertionError(f"the truth of {self} is asked")

    monkeypatch.setattr(Expr, "__bool__", truth)
    report = analyze(loaded, families, dims, None)
    no_loop_variable(report)
    assert report.exit == (3 if not dims and "roofline" in families else 0)
