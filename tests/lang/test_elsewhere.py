"""Names of other libraries: each is answered with something that can be written here."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace

import pytest

from tilefoundry.lang.elsewhere import METHODS, WRITTEN, attribute, instead
from tilefoundry.ops import find
from tilefoundry.ops.signature import Attr, Operand

TRIED = """
sum mean max min amax amin argmax prod any all var std norm exp log sqrt rsqrt abs pow power
clip clamp where maximum minimum matmul dot mm bmm einsum concat cat concatenate stack split
chunk reshape view transpose permute squeeze unsqueeze expand_dims expand broadcast_to astype to
float zeros ones full full_like zeros_like ones_like empty arange softmax log_softmax logsumexp
sigmoid relu silu gelu tanh erf layer_norm rms_norm add subtract multiply divide floor_divide
remainder negative absolute greater less equal not_equal logical_and logical_or logical_not
isnan cumsum sort topk gather scatter index_select take embedding one_hot repeat pad conv1d
conv2d reciprocal square linear addmm outer fma item numpy size swish leaky_relu
"""
"""What torch and numpy call the operations that kernels are made of."""


@pytest.mark.parametrize("name", TRIED.split())
def test_names_that_agents_try(name):
    assert name in WRITTEN or find(name) is not None


@pytest.mark.parametrize("form", sorted({*WRITTEN.values(), *METHODS.values()}))
def test_what_is_to_be_written_exists(form):
    for name in re.findall(r"tf\.(\w+)", form):
        assert find(name) is not None, name
    try:
        calls = [n for n in ast.walk(ast.parse(form)) if isinstance(n, ast.Call)]
    except SyntaxError:  # a form with words around it
        return
    for call in calls:
        op = find(call.func.attr)
        assert op is not None
        assert {k.arg for k in call.keywords} <= {p.name for p in op.params}
        needed = [p for p in op.params if isinstance(p, Operand) and not p.optional and not p.many]
        many = any(isinstance(p, Operand) and p.many for p in op.params)
        assert many or len(needed) <= len(call.args) <= len(op.params)
        assert all(isinstance(p, (Operand, Attr)) for p in op.params)


def test_no_name_of_ours_is_written_otherwise():
    assert [n for n in WRITTEN if find(n) is not None] == []


@pytest.mark.parametrize(
    "name, method, answer",
    [
        ("rsqr", False, "tf.rsqrt or tf.sqrt"),
        ("Exp", False, "tf.exp(x)"),
        ("exp_", False, "tf.exp(x)"),
        ("max", False, "tf.max(lhs, rhs)"),
        ("max", True, METHODS["max"]),
        ("fft", False, "it with the operations that `tilefoundry spec operations` lists"),
    ],
)
def test_instead(name, method, answer):
    assert instead(name, method=method) == answer


@pytest.mark.parametrize(
    "base, name, answer",
    [
        ({"eps": 1}, "eps", "['eps']"),
        (SimpleNamespace(hidden=1, heads=2), "hiden", "hidden"),
        (SimpleNamespace(hidden=1, heads=2), "q", "one of heads hidden"),
        (SimpleNamespace(), "q", "the value itself: it has none"),
        (ast, "matmul", instead("matmul")),
    ],
)
def test_attribute(base, name, answer):
    assert attribute(base, name) == answer
