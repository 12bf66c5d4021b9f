"""What the programs compute, in float64 from the mathematics, with a bound on the error.

A reference takes the inputs and weights (by parameter name) and the program's constants,
and gives for each output the exact value and the largest admissible distance from it,
element by element. The bounds count the roundings that the program states: U[dtype] for
each result that is stored, U["f32"] for each step of an f32 sum, twice that for a division,
a root or an exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

U = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "fp8e4m3": 2.0**-4}
"""Unit roundoff: half the distance of neighbours, relative to the number."""

TINY = {"bf16": 2.0**-134, "f16": 2.0**-25, "f32": 2.0**-150, "fp8e4m3": 2.0**-10}
"""Half the smallest number: the absolute error near zero."""


class Expected(NamedTuple):
    """An output's exact value and the admissible distance from it."""

    value: Tensor
    bound: Tensor


Inputs = Mapping[str, Tensor]
Reference = Callable[[Inputs, ModuleType], tuple[Expected, ...]]


def rounded(value: Tensor, dtype: str, slack: Tensor | float = 0.0) -> Expected:
    """A result stored as ``dtype`` after ``slack`` of absolute error in wider numbers."""
    slack = torch.as_tensor(slack, dtype=torch.float64)
    return Expected(value, U[dtype] * (value.abs() + slack) + slack + TINY[dtype])


def product(a: Tensor, b: Tensor, dtype: str) -> Expected:
    """A matrix product summed in f32 in any order and stored as ``dtype``."""
    steps = a.shape[-1] + 2
    return rounded(a @ b, dtype, steps * U["f32"] * (a.abs() @ b.abs()))


def chain(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x = t["x"].double()
    y = (x * x + x) * x
    u = U["f16"]
    # the square, the sum and the product each round; 1.01 covers the products of errors
    slack = u * ((x * x).abs() + (x * x + x).abs()) * x.abs() * 1.01
    return (rounded(y, "f16", slack + TINY["f16"] * (1 + x.abs())),)


def softmax(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x = t["x"].double()
    y = torch.softmax(x, -1)
    most = x.amax(-1, keepdim=True)
    # the largest number and the sum's logarithm may be added before they are taken off
    depth = (most - x) + most.abs() + x.shape[-1] + 24
    return (rounded(y, "bf16", depth * U["f32"] * y),)


def transpose(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x = t["x"].double().T
    return (Expected(x, torch.zeros_like(x)),)


def gemm(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    return (product(t["a"].double(), t["b"].double(), "bf16"),)


def gemm_either_way(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    """The rows of b run along k, or along n. Products of fp8 numbers are exact in f32."""
    b = t["b"].double() if c.B_ROWS == "k" else t["b"].double().T
    return (product(t["a"].double(), b, "bf16"),)


def gemm_epilogue(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    a, b, bias, residual = (t[n].double() for n in ("a", "b", "bias", "residual"))
    steps = a.shape[-1] + 4
    y = a @ b + bias
    slack = steps * U["f32"] * (a.abs() @ b.abs() + bias.abs())
    active = torch.nn.functional.gelu(y, approximate="tanh")
    # the slope is below 1.13; the polynomial and the hyperbolic tangent round 16 times at most
    slack = 1.13 * slack + 16 * U["f32"] * y.abs() + U["f32"] * residual.abs()
    return (rounded(active + residual, "bf16", slack),)


def gemv(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    return (product(t["x"].double(), t["w"].double().T, "bf16"),)


def gemv_columns(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    return (product(t["x"].double(), t["w"].double(), "bf16"),)


def row_sum(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x = t["x"].double()
    return (Expected(x.sum(-1), x.shape[-1] * U["f32"] * x.abs().sum(-1)),)


def full_sum(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    found = row_sum({"x": t["x"][None]}, c)
    # no term is added more often than a thread's share, its warp, its CTA and all CTAs say
    deep = c.COUNT // (c.CTAS * c.THREADS) + c.THREADS + c.CTAS
    return (Expected(found[0].value, found[0].bound * deep / c.COUNT),)


def vector_product(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    found = product(t["x"].double()[None], t["w"].double(), "f32")
    return (Expected(found.value[0], found.bound[0]),)


def layernorm(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x, weight, bias = (t[n].double() for n in ("x", "weight", "bias"))
    steps = (x.shape[-1] + 16) * U["f32"]
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + c.EPS)
    normed = (x - mean) * scale
    shifted = steps * x.abs().mean(-1, keepdim=True) * scale  # the mean's own error
    slack = (shifted + steps * normed.abs()) * weight.abs() + 4 * U["f32"] * bias.abs()
    return (rounded(normed * weight + bias, "bf16", slack),)


def rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def rmsnorm(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x, weight = t["x"].double(), t["weight"].double()
    normed = rms(x, c.EPS) * weight
    return (rounded(normed, "bf16", (x.shape[-1] + 16) * U["f32"] * normed.abs()),)


def rmsnorm_quant(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    x = t["x"].double()
    y = (rms(x, c.EPS) * t["weight"].double()).reshape(x.shape[0], -1, 128)
    scale = y.abs().amax(-1, keepdim=True) / 448
    steps = (x.shape[-1] + 16) * U["f32"]  # the sum of squares, the root, four products
    q = (y / scale).reshape(x.shape)
    return rounded(q, "fp8e4m3", 2 * steps * q.abs()), rounded(
        scale.squeeze(-1), "f32", steps * scale.squeeze(-1)
    )


def residual_rmsnorm(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    h, mix, gamma = (t[n].double() for n in ("h", "mix", "gamma"))
    added = h + mix
    # the sum is rounded to bf16 before it is normalised, as the program says
    stored = (t["h"].float() + t["mix"].float()).bfloat16().double()
    normed = rms(stored, c.EPS)
    slack = (U["bf16"] + (h.shape[-1] + 8) * U["f32"]) * normed.abs() * gamma.abs()
    return rounded(added, "bf16"), rounded(normed * gamma, "bf16", slack)


def attention(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    """q (batch, rows, heads, d), k and v (batch, keys, groups, d); the last query sees all.

    Shares are rounded to the inputs' type before they weigh the values.
    """
    dtype = "f16" if t["q"].dtype is torch.float16 else "bf16"
    return (_attention(t["q"], t["k"], t["v"], dtype, U[dtype], TINY[dtype]),)


def decode(t: Inputs, c: ModuleType) -> tuple[Expected, ...]:
    """One query (batch, heads, d) at the end of the context; shares stay in f32."""
    found = _attention(t["q"][:, None], t["k"], t["v"], "bf16", U["f32"], 0.0)
    return (Expected(*(x[:, 0] for x in found)),)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dtype: str, share: float, least: float
) -> Expected:
    q, k, v = (x.double().transpose(1, 2) for x in (query, key, value))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    rows, keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    seen = torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows
    s = (q @ k.mT * d**-0.5).masked_fill(~seen, -torch.inf)
    p = torch.softmax(s, -1)
    # an error e of a score changes its share by e; a score is an f32 sum of d products,
    # and its difference to the largest one is rounded again
    size = (q.abs() @ k.abs().mT * d**-0.5).amax(-1, keepdim=True)
    slack = 2 * (d + 12) * U["f32"] * size + (keys + 16) * U["f32"]
    whole = rounded(p @ v, dtype, (2 * slack + share) * 1.01 * (p @ v.abs()) + least)
    return Expected(*(x.transpose(1, 2) for x in whole))


REFERENCES: Mapping[str, Reference] = {
    "chain": chain,
    "softmax": softmax,
    "softmax_cta": softmax,
    "softmax_ring": softmax,
    "softmax_split": softmax,
    "rmsnorm": rmsnorm,
    "layernorm": layernorm,
    "row_sum": row_sum,
    "full_sum": full_sum,
    "softmax_cluster": softmax,
    "transpose_smem": transpose,
    "transpose_swizzled": transpose,
    "gemm_optimal": gemm,
    "gemm_own_storer": gemm,
    "splitk_cluster": gemm,
    "gemm_ampere": gemm,
    "gemm_ampere_plain": gemm,
    "gemm_rs": gemm,
    "gemm_halves": gemm_either_way,
    "gemm_skinny": gemm_either_way,
    "gemm_batched": gemm,
    "gemm_epilogue": gemm_epilogue,
    "gemv": gemv,
    "gemv_columns": gemv_columns,
    "splitk_two_kernels": gemm_either_way,
    "splitk_reshard": vector_product,
    "layernorm_long": layernorm,
    "decode_attention": decode,
    "rmsnorm_quant": rmsnorm_quant,
    "flash_attention": attention,
    "flash_attention_pipelined": attention,
    "residual_rmsnorm": residual_rmsnorm,
    "residual_rmsnorm_plain": residual_rmsnorm,
}


def inputs(types: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Standard normal inputs for parameters of these types, a stream of their own each."""
    from tilefoundry.ops.base import torch_dtype

    made: dict[str, Tensor] = {}
    for n, (name, type) in enumerate(types.items()):
        stream = torch.Generator().manual_seed(1000 * seed + n)
        made[name] = torch.randn(type.shape, generator=stream).to(torch_dtype(type.dtype))
    return made


def misses(got: Tensor, want: Expected) -> str:
    """Where a result leaves its bound, in words; empty where it does not."""
    if tuple(got.shape) != tuple(want.value.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.value.shape)}"
    off = (got.double() - want.value).abs()
    bad = ~(off <= want.bound)
    if not bool(bad.any()):
        return ""
    first = tuple(bad.nonzero()[0].tolist())
    return (
        f"{int(bad.sum())} of {bad.numel()} elements; the first is {first}: {float(got[first])}, "
        f"expected {float(want.value[first])} within {float(want.bound[first])}"
    )
