"""What the evaluator refuses: inputs that are not the function's, units that disagree."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate, instantiate, weight_types
from tilefoundry.lang.load import load_source

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N = DimVar("n", 2, 8)
UNITS = (Topology("cta", 4), Topology("thread", 32))

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"), topologies=UNITS)
class Program:
"""


@pytest.fixture
def load(tmp_path):
    def make(members):
        path = tmp_path / "program.py"
        body = textwrap.indent(textwrap.dedent(members).strip("\n"), "    ")
        path.write_text(f"{HEAD}{body}\n", encoding="utf-8")
        return load_source(str(path), None, {})

    return make


@pytest.fixture
def refused(load):
    def run(members, *inputs, weights=None):
        loaded = load(members)
        with pytest.raises(Refusal) as caught:
            evaluate(loaded.module, loaded.func, inputs, weights)
        (found,) = caught.value.diags
        assert found.text()
        return found

    return run


TWO = """
@func
def f(x: Tensor[(N, 4), "f32"], y: Tensor[(N, 4), "f32"]):
    return x + y
"""


@pytest.mark.parametrize(
    "inputs, code, says",
    [
        ([torch.zeros(4, 4)], "input-count", "f takes 2 inputs, 1 were given"),
        ([torch.zeros(4, 4)] * 3, "input-count", "f takes 2 inputs, 3 were given"),
        (
            [torch.zeros(4, 4), torch.zeros(3, 4)],
            "input-shape",
            "the input y has the shape (3, 4)",  # x came first and says that n is 4
        ),
        (
            [torch.zeros(4, 4), torch.zeros(4, 5)],
            "input-shape",
            "the input y has the shape (4, 5)",
        ),
        ([torch.zeros(4, 4), torch.zeros(4)], "input-shape", "the input y has the shape (4,)"),
        (
            [torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.float64)],
            "input-dtype",
            "the input y holds torch.float64",
        ),
        ([torch.zeros(4, 4), 5], "input-form", "the input y is not a tensor"),
        ([[[0.0]], torch.zeros(4, 4)], "input-form", "the input x is not a tensor"),
    ],
)
def test_inputs(refused, inputs, code, says):
    found = refused(TWO, *inputs)
    assert (found.code, found.says) == (code, says)


@pytest.mark.parametrize("rows, inside", [(1, False), (2, True), (8, True), (9, False)])
def test_dims(load, refused, rows, inside):
    x = torch.ones(rows, 4)
    if inside:
        loaded = load(TWO)
        (out,) = evaluate(loaded.module, loaded.func, [x, x])
        assert torch.equal(out, torch.full((rows, 4), 2.0))
        return
    found = refused(TWO, x, x)
    assert (found.code, found.says) == ("dim-range", f"the open extent n is {rows}")
    assert found.expected == "2 to 8"


def test_a_dim_that_no_input_determines(refused):
    members = """
    @func
    def f(x: Tensor[(N * N,), "f32"]):
        return x
    """
    found = refused(members, torch.zeros(16))
    assert (found.code, found.fields["name"]) == ("dim-unbound", "n")


def test_weights(load, refused):
    members = """
    @func
    def f(x: Tensor[(4,), "f32"], w: ConstTensor[(4,), "f32"]):
        return x * w
    """
    assert refused(members, torch.ones(4)).code == "weight-missing"
    loaded = load(members)
    (out,) = evaluate(loaded.module, loaded.func, [torch.ones(4)], {"w": torch.full((4,), 3.0)})
    assert out.tolist() == [3.0] * 4
    found = refused(members, torch.ones(4), weights={"w": torch.ones(5)})
    assert (found.code, found.fields["name"]) == ("input-shape", "w")


def test_one_weight_of_two_types(load):
    members = """
    @func
    def f(x: Tensor[(4,), "f32"], w: ConstTensor[(4,), "f32"]):
        return x * w

    @func
    def g(x: Tensor[(4,), "f32"], w: ConstTensor[(1,), "f32"]):
        return x * w
    """
    with pytest.raises(Refusal) as caught:
        weight_types(load(members).module)
    (found,) = caught.value.diags
    assert found.code == "weight-types"
    assert (found.expected, found.found) == ('Tensor[(4,), "f32"]', 'Tensor[(1,), "f32"]')


def test_named_inputs(load):
    loaded = load(TWO)
    obj = instantiate(loaded.cls, {})
    x, y = torch.ones(3, 4), torch.full((3, 4), 2.0)
    assert torch.equal(obj.f(x, y=y), torch.full((3, 4), 3.0))
    with pytest.raises(Refusal) as caught:
        obj.f(x, z=y)
    (found,) = caught.value.diags
    assert (found.code, found.fields["name"], found.expected) == ("input-unknown", "z", "one of y")


WRITE = """
@func
def f(x: Tensor[(8, 4), "f32"]):
    out = tf.zeros(Tensor[(8, 4), "f32"])
    with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
        part = x[cta.c * 2:cta.c * 2 + 2] {extra}
        out = tf.insert_slice(out, part, (cta.c * {step}, 0))
    return out
"""


def test_units_write_apart(load, refused):
    x = torch.arange(32.0).reshape(8, 4)
    loaded = load(WRITE.format(step=2, extra="* 2.0"))
    (out,) = evaluate(loaded.module, loaded.func, [x])
    assert torch.equal(out, x * 2.0)
    found = refused(WRITE.format(step=1, extra=""), x)
    # unit 0 writes rows 0 and 1, unit 1 rows 1 and 2: they meet in row 1
    assert (found.code, found.span.line) == ("write-overlap", 14)
    assert found.says == "two units write different values to out at (1, 0)"


def test_units_may_write_equal_values_to_one_place(load):
    loaded = load(WRITE.format(step=0, extra="* 0.0"))
    (out,) = evaluate(loaded.module, loaded.func, [torch.ones(8, 4)])
    assert torch.equal(out, torch.zeros(8, 4))


@pytest.mark.parametrize(
    ("at", "code", "found"),
    [
        ("4 // cta.c", "divide-by-zero", {"op": "tf.insert_slice"}),
    ],
)
def test_one_unit_that_writes_nowhere(refused, at, code, found):
    members = WRITE.replace("cta.c * {step}", at).format(extra="")
    refusal = refused(members, torch.zeros(8, 4))
    assert (refusal.code, refusal.span.line) == (code, 14)
    assert {k: refusal.fields[k] for k in found} == found


CHAIN = """
@func
def f(x: Tensor[(8, 4), "f32"]):
    out = tf.zeros(Tensor[(12, 4), "f32"])
    with Mesh(("cta",), layout=(3,), names=("c",)) as cta:
        for i in range(cta.c, 8, 3):
            row = x[i:i + 1]
            out = tf.insert_slice(out, row, (i, 0))
            back = out[{at}:{at} + 1]
            out = tf.insert_slice(out, back * 2.0, (i, 0))
    return out
"""


def test_units_read_their_own(load, refused):
    x = torch.arange(32.0).reshape(8, 4)
    loaded = load(CHAIN.format(at="i"))
    (out,) = evaluate(loaded.module, loaded.func, [x])
    assert torch.equal(out, torch.cat([x * 2.0, torch.zeros(4, 4)]))
    found = refused(CHAIN.format(at="(i + 1)"), x)
    assert (found.code, found.span.line) == ("race-read", 16)


PACES = """
@func
def f(x: Tensor[(8, 4), "f32"]):
    out = tf.zeros(Tensor[(8, 4), "f32"])
    with Mesh(("cta",), layout=({ctas},), names=("c",)) as cta:
        for i in range(cta.c, 8, {ctas}):
            out = tf.insert_slice(out, x[i:i + 1], (i, 0))
            with Mesh(("thread",), layout=(2, 16), names=("t", "l")) as thread:
                {first}
                {second}
    return out
"""
READ = "part = out[{row}:{row} + 1, thread.t * 2:thread.t * 2 + 2]"
DOUBLE = "out = tf.insert_slice(out, part * 2.0, (i, thread.t * 2))"


@pytest.mark.parametrize("ctas", [1, 3])
def test_threads_are_in_step_where_ctas_are_not(load, ctas):
    """Thread (c, t) reads and doubles its columns of what CTA c wrote."""
    loaded = load(PACES.format(ctas=ctas, first=READ.format(row="i"), second=DOUBLE))
    x = torch.arange(32.0).reshape(8, 4)
    assert torch.equal(evaluate(loaded.module, loaded.func, [x])[0], x * 2.0)


@pytest.mark.parametrize(
    ("first", "second", "code", "line"),
    [
        # row 0 is CTA 0's alone, and threads of every CTA read it
        (READ.format(row="0"), DOUBLE, "race-read", 16),
        ("part = out[0:1]", "out = tf.insert_slice(out, part, (i, 0))", "race-read", 16),
        # every CTA writes row 0, which was CTA 0's
        ("part = x[1:2]", "out = tf.insert_slice(out, part, (0, 0))", "write-overlap", 17),
        # CTA c writes row c, after all wrote it and while others may still do so
        (
            "out = tf.insert_slice(out, x[1:2] * 0.0, (7, 0))",
            "out = tf.insert_slice(out, x[cta.c:cta.c + 1], (7 - cta.c, 0))",
            "write-overlap",
            17,
        ),
    ],
)
def test_ctas_that_are_not_in_step(refused, first, second, code, line):
    x = torch.arange(32.0).reshape(8, 4) + 1.0
    found = refused(PACES.format(ctas=3, first=first, second=second), x)
    assert (found.code, found.span.line) == (code, line)


def test_what_several_wrote_alike_each_of_them_may_read(load):
    """CTAs 0 and 1 write row 0, CTA 2 row 1: twice each, CTA 0 and 1 a third time."""
    members = """
    @func
    def f(x: Tensor[(8, 4), "f32"]):
        out = tf.zeros(Tensor[(8, 4), "f32"])
        with Mesh(("cta",), layout=(3,), names=("c",)) as cta:
            for i in range(cta.c, 8, 3):
                out = tf.insert_slice(out, x[0:1], (cta.c // 2, 0))
                back = out[cta.c // 2:cta.c // 2 + 1]
                out = tf.insert_slice(out, back, (cta.c // 2, 0))
        return out
    """
    loaded = load(members)
    x = torch.arange(32.0).reshape(8, 4)
    (out,) = evaluate(loaded.module, loaded.func, [x])
    assert torch.equal(out, torch.cat([x[:1], x[:1], torch.zeros(6, 4)]))


def test_a_copy_in_registers_is_each_units_own(load):
    members = """
    @func
    def f(x: Tensor[(8, 4), "f32"]):
        out = tf.zeros(Tensor[(8, 4), "f32"])
        with Mesh(("cta",), layout=(3,), names=("c",)) as cta:
            for i in range(cta.c, 8, 3):
                own = tf.reshard(out, storage="rmem")
                own = tf.insert_slice(own, tf.reshard(x[i:i + 1], storage="rmem"), (3, 0))
                own = tf.insert_slice(own, tf.reshard(x[0:1], storage="rmem"), (4, 0))
                row = tf.reshard(own[3:4] + own[4:5], storage="gmem")
                out = tf.insert_slice(out, row, (i, 0))
        return out
    """
    loaded = load(members)
    x = torch.arange(32.0).reshape(8, 4)
    (out,) = evaluate(loaded.module, loaded.func, [x])
    assert torch.equal(out, x + x[:1])


@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_ctas_in_step_read_what_others_wrote(load, ctas):
    """1, 2 or 4 CTAs share 8 rows evenly: each step ends before the next one begins."""
    members = PACES.format(ctas=ctas, first="part = out[0:1]", second="pass")
    loaded = load(members.replace("pass", "out = tf.insert_slice(out, part, (i, 0))"))
    x = torch.arange(32.0).reshape(8, 4)
    assert torch.equal(evaluate(loaded.module, loaded.func, [x])[0], x[:1].expand(8, 4))


def test_an_index_may_not_divide_by_zero(refused):
    members = """
    @func
    def f(x: Tensor[(8,), "f32"]):
        for i in range(4):
            x = x + x[7 // i]
        return x
    """
    found = refused(members, torch.ones(8))
    assert (found.code, found.span.line) == ("divide-by-zero", 12)


def test_an_extent_may_not_be_negative(load, refused):
    members = """
    @func
    def f(x: Tensor[(N,), "f32"]):
        return tf.zeros(Tensor[(N - 4,), "f32"])
    """
    loaded = load(members)
    assert evaluate(loaded.module, loaded.func, [torch.ones(6)])[0].shape == (2,)
    found = refused(members, torch.ones(3))
    assert (found.code, found.says) == ("type-extent", "an extent cannot be -1")


def test_a_dtype_that_torch_has_not(refused):
    members = """
    @func
    def f(x: Tensor[(8,), "f32"]):
        return tf.zeros(Tensor[(8,), "f4e2m1"])
    """
    found = refused(members, torch.ones(8))
    assert (found.code, found.exit) == ("dtype-not-evaluated", 3)


def test_specialisations_of_specialisations(load):
    members = """
    @func
    def f(x: Tensor[(N,), "f32"]) -> Tensor[(N,), "f32"]:
        ...

    @f.specialize(RangePattern("n", 2, 8))
    def some(x: Tensor[(N,), "f32"]) -> Tensor[(N,), "f32"]:
        ...

    @some.specialize(RangePattern("n", 2, 4))
    def few(x: Tensor[(N,), "f32"]):
        return x * 2.0

    @some.specialize(RangePattern("n", 5, 8))
    def many(x: Tensor[(N,), "f32"]):
        return x * 3.0
    """
    loaded = load(members)
    for n, factor in ((2, 2.0), (4, 2.0), (5, 3.0), (8, 3.0)):
        (out,) = evaluate(loaded.module, "f", [torch.ones(n)])
        assert torch.equal(out, torch.full((n,), factor))


@pytest.mark.parametrize(
    ("dtype", "number", "held"),
    [
        ("f16", 65519.0, True),  # rounds down to 65504
        ("f16", 65520.0, False),  # halfway to 65536: rounds to infinity
        ("f16", float("inf"), True),
        ("bf16", 3.38e38, True),
        ("bf16", 3.40e38, False),
        ("f32", 3.4028235e38, True),
        ("f32", 10**39, False),
    ],
)
def test_a_number_that_would_round_to_infinity_is_refused(dtype, number, held):
    import torch

    from tilefoundry.ir.dtype import dtype_of
    from tilefoundry.lang.build import _holds

    torch_dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    rounded = torch.tensor(float(number), dtype=torch.float64).to(torch_dtype)
    assert _holds(dtype_of(dtype), number) is held
    assert bool(rounded.isinf()) is (not held or number == float("inf"))
