"""What the operations refuse, with the words a reader gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import dtype_of
from tilefoundry.ir.expr import OpenDim
from tilefoundry.ir.types import TensorType
from tilefoundry.ops import find
from tilefoundry.ops.base import Call
from tilefoundry.ops.signature import bind

N = OpenDim("n", 0, 64).expr()


def t(dtype: str, *shape: Any) -> TensorType:
    return TensorType(shape, dtype_of(dtype))


def infer(name: str, *operands: Any, **attrs: Any) -> Any:
    op = find(name)
    assert op is not None
    bound = bind(f"tf.{name}", op.params, operands, attrs, None)
    return op.infer(Call(name, bound.operands, bound.attrs))  # type: ignore[arg-type]


X = t("f32", 4, 8)
I = t("i32", 4, 8)  # noqa: E741
B = t("u8", 4)
REFUSED = [
    ("exp", (I,), {}, "op-dtype", "tf.exp is not defined for i32"),
    ("exp", (t("fp8e4m3", 4),), {}, "op-dtype", "tf.exp is not defined for fp8e4m3"),
    ("add", (t("bool", 4), t("bool", 4)), {}, "op-dtype", "not defined for bool"),
    ("add", (X, t("f32", 3)), {}, "op-broadcast", "(4, 8) and (3,) do not broadcast"),
    ("add", (X, t("fp8e5m2", 8)), {}, "op-promotion", "f32 and fp8e5m2"),
    ("add", (X,), {}, "op-arguments", "rhs is missing"),
    ("add", (X, X, X), {}, "op-arguments", "1 too many"),
    ("add", (X, X), {"alpha": 2}, "op-arguments", "no parameter is called alpha"),
    ("add", (X,), {"lhs": X}, "op-arguments", "lhs is given twice"),
    ("pow", (I, I), {}, "op-dtype", "tf.pow is not defined for i32"),
    ("where", (I, X, X), {}, "op-dtype", "tf.where is not defined for i32"),
    ("clamp", (X,), {}, "op-arguments", "min_val and max_val are both missing"),
    ("clamp", (I,), {"min_val": 0.5}, "op-attribute", "min_val cannot be 0.5"),
    ("gelu", (X,), {"approximate": "fast"}, "op-attribute", "approximate cannot be 'fast'"),
    ("unary", (X,), {"kind": "cbrt"}, "op-attribute", "kind cannot be 'cbrt'"),
    ("binary", (X, I), {"kind": "pow", "out": 1}, "op-arguments", "no parameter is called out"),
    ("cast", (X,), {"dtype": "float16"}, "dtype-unknown", "'float16' is not an element type"),
    ("full_like", (I,), {"value": 0.5}, "op-attribute", "value cannot be 0.5"),
    ("full_like", (I,), {"value": float("nan")}, "op-attribute", "value cannot be nan"),
    ("full_like", (B,), {"value": 300}, "op-attribute", "value cannot be 300"),
    ("full_like", (t("bool", 4),), {"value": 2}, "op-attribute", "value cannot be 2"),
    ("clamp", (B,), {"min_val": -5}, "op-attribute", "min_val cannot be -5"),
    ("clamp", (I,), {"max_val": 2**31}, "op-attribute", "max_val cannot be 2147483648"),
    ("arange", (), {"type": t("u8", 257)}, "op-attribute", "step cannot be 1"),
    ("arange", (), {"type": t("u8", 2), "start": -1}, "op-attribute", "start cannot be -1"),
    ("arange", (), {"type": t("i8", 3), "step": -65}, "op-attribute", "step cannot be -65"),
    ("arange", (), {"type": t("i32", 2, 2)}, "op-attribute", "type cannot be"),
    ("arange", (), {"type": t("i32", 4), "step": 0.5}, "op-attribute", "step cannot be 0.5"),
    ("softmax", (X,), {"axis": 2}, "op-axis", "no axis 2"),
    ("softmax", (t("f32"),), {}, "op-axis", "no axis -1"),
    ("cumsum", (X,), {"axis": -3}, "op-axis", "no axis -3"),
    ("argmax", (t("f32", 4, 0),), {}, "reduce-empty", "argmax of an axis that is empty"),
    ("topk", (X,), {"k": 9}, "topk-extent", "9 elements of axis 1, which may have 8"),
    ("topk", (X,), {"k": 0}, "topk-extent", "0 elements"),
    ("topk", (t("f32", N),), {"k": 1}, "topk-extent", "which may have n"),
    ("rms_norm", (X, t("f32", 4)), {}, "norm-weight", "operand 1 is"),
    ("layer_norm", (X, None, t("f32", 4)), {}, "norm-weight", "operand 2 is"),
    (
        "quant",
        (X,),
        {"group": 3, "target_dtype": "i8"},
        "quant-group",
        "blocks (3,) do not tile (4, 8)",
    ),
    ("quant", (X,), {"group": (1, 2, 4), "target_dtype": "i8"}, "quant-group", "blocks (1, 2, 4)"),
    ("quant", (X,), {}, "op-arguments", "target_dtype is missing"),
    ("quant", (X,), {"target_dtype": "i32"}, "op-dtype", "not defined for i32"),
    ("bitcast", (X,), {"layout": (31,)}, "bitcast-size", "has 1024 bits"),
    ("bitcast", (X,), {"layout": ((4, 8), (16, 1))}, "bitcast-order", "layout is"),
]


@pytest.mark.parametrize(
    ("name", "operands", "attrs", "code", "words"),
    REFUSED,
    ids=[f"{n}-{r[0]}-{r[3]}" for n, r in enumerate(REFUSED)],
)
def test_types_refused(name: str, operands: Any, attrs: Any, code: str, words: str):
    with pytest.raises(Refusal) as caught:
        infer(name, *operands, **attrs)
    assert [d.code for d in caught.value.diags] == [code]
    assert words in str(caught.value)


def test_a_bitcast_to_another_dtype_reads_the_same_bits():
    x = torch.tensor([1.0, -2.0, 0.5, float("inf")])
    target = t("i32", 2, 2)
    made = infer("bitcast", t("f32", 4), layout=target)
    assert made == target
    op = find("bitcast")
    assert op is not None
    # IEEE 754 binary32 patterns
    assert op.evaluate([x], {"layout": target}, made).tolist() == [
        [0x3F800000, 0xC0000000 - 2**32],
        [0x3F000000, 0x7F800000],
    ]


def test_a_number_takes_the_dtype_of_the_tensor_beside_it():
    add, where = find("add"), find("where")
    assert add is not None and where is not None
    assert add.number_dtype((t("bf16", 4), None)) is dtype_of("bf16")
    assert where.number_dtype((t("bool", 4), None, t("f16", 4))) is dtype_of("f16")
    assert where.number_dtype((t("bool", 4), None, None)) is None


def test_costs_by_hand():
    def counts(name: str, *operands: Any, **attrs: Any) -> Any:
        op = find(name)
        assert op is not None
        bound = bind(f"tf.{name}", op.params, operands, attrs, None)
        call = Call(name, bound.operands, bound.attrs)  # type: ignore[arg-type]
        made = op.infer(call)
        shapes = tuple(m.shape for m in getattr(made, "items", (made,)))
        return dict(op.work(call, shapes).counts)

    # 32 elements in 4 rows: max, subtract, sum, scale; an exp each, a reciprocal a row
    assert counts("softmax", X) == {("float", "f32"): 128, ("special", "f32"): 36}
    assert counts("softmax", t("bf16", 4, 8)) == {("float", "f32"): 128, ("special", "f32"): 36}
    assert counts("silu", X) == {("float", "f32"): 96, ("special", "f32"): 64}
    assert counts("exp", X) == {("special", "f32"): 32}
    # square, sum, scale, weigh; a row: mean, eps, rsqrt
    weight = t("f32", 8)
    assert counts("rms_norm", X, weight) == {("float", "f32"): 136, ("special", "f32"): 4}
    assert counts("add", I, I) == {("int", "i32"): 32}
    assert counts("cast", X, dtype="bf16") == {("float", "f32"): 32}
    assert counts("cast", X, dtype="f32") == {}
    assert counts("bitcast", X, layout=(32,)) == {}
    assert counts("argmax", X) == {("float", "f32"): 32}


def test_evaluation_refuses():
    floor_div, cast, rope = find("floor_div"), find("cast"), find("rope")
    assert floor_div is not None and cast is not None and rope is not None
    one = torch.ones(2, dtype=torch.int32)
    with pytest.raises(Refusal) as caught:
        floor_div.evaluate([one, one - 1], {}, t("i32", 2))
    assert "tf.floor_div of an integer by 0" in str(caught.value)
    with pytest.raises(Refusal) as caught:
        cast.evaluate([one], {}, t("f4e2m1", 2))
    assert "no element type that holds f4e2m1" in str(caught.value)
    q = torch.ones(1, 2, 4)
    cache = torch.ones(3, 4)
    with pytest.raises(Refusal) as caught:
        rope.evaluate([q, q, cache, cache, torch.tensor([3])], {}, t("f32", 1, 2, 4))
    assert caught.value.diags[0].code == "index-out-of-range"


def test_floats_divide_by_zero_as_ieee_754_says():
    div = find("div")
    assert div is not None
    out = div.evaluate([torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)], {}, t("f32", 3))
    assert out[:2].tolist() == [float("inf"), float("-inf")] and out[2].isnan()


def test_quantised_blocks_by_hand():
    quant = find("quant")
    assert quant is not None
    x = torch.tensor([[1.0, -2.0, 0.0, 0.0], [127.0, 63.5, 0.4, -0.5]])
    made = infer("quant", t("f32", 2, 4), group=2, target_dtype="i8")
    attrs = {"scheme": "absmax", "group": (2,), "target_dtype": dtype_of("i8")}
    q, scale = quant.evaluate([x], attrs, made)
    # 2/127, zeros, 1, 0.5/127; 63.5 is halfway and rounds to the even 64
    assert q.tolist() == [[64, -127, 0, 0], [127, 64, 102, -127]]
    expected = torch.tensor([[2 / 127, 1.0], [1.0, 0.5 / 127]])
    assert torch.equal(scale, expected)
    q, scale = quant.evaluate([x], {**attrs, "scheme": "absmax_pow2"}, made)
    # the next powers of two: of 2/127 = 0.0157.. 2^-5, of 1 itself, of 0.5/127 = 0.0039.. 2^-7
    assert scale.tolist() == [[2**-5, 1.0], [1.0, 2**-7]]
    assert q.tolist() == [[32, -64, 0, 0], [127, 64, 51, -64]]
