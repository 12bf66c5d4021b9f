"""Every elementwise operation, by element type, against the evaluator."""

from __future__ import annotations

import textwrap

import pytest
import torch
from test_cpu_programs import run

from tilefoundry.evaluate import evaluate
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.lang.load import load_source
from tilefoundry.ops.base import torch_dtype

N = 24
UNARY = ("neg", "abs", "rsqrt", "sqrt", "square", "exp", "exp2", "log", "log2", "ceil", "floor",
         "round", "sigmoid", "silu", "softplus", "tanh", "erf", "sin")  # fmt: skip
UNARY = (*UNARY, "cos", "gelu", "relu")
BINARY = ("add", "sub", "mul", "div", "floor_div", "mod", "minimum", "maximum", "fmin", "fmax",
          "pow", "cmp_eq", "cmp_ne", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge")  # fmt: skip
FLOATS = {
    **{name: f"tf.{name}(a)" for name in UNARY},
    **{name: f"tf.{name}(a, b)" for name in BINARY},
    "gelu_tanh": 'tf.gelu(a, approximate="tanh")',
    "number": "a * 0.1 + 3",
    "fma": "tf.fma(a, b, -(a * b))",
    "fma_number": "tf.fma(a, 0.1, b)",
    "clamp": "tf.clamp(a, -0.3, 0.7)",
    "where": "tf.where(a < b, a, 0.25)",
    "logical": "tf.logical_and(a < b, tf.logical_not(b > 1.0))",
    "to_i32": 'tf.cast(a * 7, "i32")',
    "to_bool": 'tf.cast(tf.floor(a), "bool")',
}
INTEGERS = {
    **{name: f"tf.{name}(a)" for name in ("neg", "abs", "square", "relu")},
    **{name: f"tf.{name}(a, b)" for name in BINARY if name not in ("pow", "fmin", "fmax")},
    "clamp": "tf.clamp(a, -3, 7)",
    "where": "tf.where(a < b, a, 2)",
    "to_f32": 'tf.cast(a, "f32")',
    "to_bf16": 'tf.cast(a, "bf16")',
    "to_i8": 'tf.cast(a, "i8")',
    "logical": "tf.logical_or(tf.cast(a, 'bool'), b > 1)",
}
EXACT = {"neg", "abs", "ceil", "floor", "round", "relu", "minimum", "maximum", "fmin", "fmax",
         "clamp", "where",
         "logical", "to_i32", "to_bool", "to_f32", "to_bf16", "to_i8", "add", "sub", "mul",
         "square", "div", "floor_div", "mod", "number", "fma", "fma_number"}  # fmt: skip
"""Rounded at most once by each side, in the same way."""

CASES = {
    "f32": FLOATS,
    "bf16": FLOATS,
    "f16": FLOATS,
    "f64": FLOATS,
    "i32": INTEGERS,
    "i64": INTEGERS,
    "u8": {k: v for k, v in INTEGERS.items() if k not in ("neg", "abs", "clamp")},
    "i8": INTEGERS,
}


def program(dtype, forms, folder):
    body = "\n".join(f"v{n} = tf.reshard({form}, ({N},), 'gmem')" for n, form in enumerate(forms))
    text = f"""
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 1), Topology("lane", 8)))
class Each:
    @func
    def f(x: Tensor[({N},), "{dtype}"], y: Tensor[({N},), "{dtype}"]):
        with Mesh(("core",), layout=(1,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("l",)) as t:
                a = tf.reshard(x, (3, 8 @ t.l), "rmem")
                b = tf.reshard(y, (3, 8 @ t.l), "rmem")
{textwrap.indent(body, " " * 16)}
        return {", ".join(f"v{n}" for n in range(len(forms)))}
"""
    path = folder / "each.py"
    path.write_text(text)
    return load_source(str(path), None, {})


def values(dtype, floats):
    stream = torch.Generator().manual_seed(3)
    if floats:
        made = torch.randn((2, N), generator=stream).to(dtype)
        return made[0].abs() + 0.0625, made[1]
    low = 0 if dtype is torch.uint8 else -9
    made = torch.randint(low, 10, (2, N), generator=stream).to(dtype)
    return made[0], torch.where(made[1] == 0, 3, made[1])


@pytest.mark.parametrize("dtype", CASES)
def test_operations_are_the_evaluators(dtype, tmp_path):
    forms = CASES[dtype]
    loaded = program(dtype, forms.values(), tmp_path)
    kind = torch_dtype(DTYPES[dtype])
    given = values(kind, kind.is_floating_point)
    _, outs = run(loaded, given=given)
    wanted = evaluate(loaded.module, "f", list(given), {}, "cpu")
    wrong = []
    for name, out, want in zip(forms, outs, wanted, strict=True):
        exact = name in EXACT or name.startswith("cmp")
        if exact and torch.equal(out, want):
            continue
        # f32 functions differ by their own errors and torch's, the narrow ones by one rounding
        units = 12 if out.dtype is torch.float32 else 4 if dtype == "f64" else 1
        slack = units * torch.finfo(out.dtype).eps if out.dtype.is_floating_point else 0
        off = (out.double() - want.double()).abs()
        if exact or not (off <= slack * want.double().abs().clamp(min=2**-10)).all():
            wrong.append((name, out, want))
    assert not wrong, wrong[0]
