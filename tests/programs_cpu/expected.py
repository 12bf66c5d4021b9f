"""What the CPU programs compute, in float64 from the mathematics, with a bound on the error."""

from __future__ import annotations

import torch

from programs.reference import (
    TINY,
    Expected,
    Inputs,
    Reference,
    U,
    chain,
    residual_rmsnorm,
    rms,
    rounded,
)


def any_chain(t: Inputs, c) -> tuple[Expected, ...]:
    if c.DTYPE == "f16":
        return chain(t, c)
    x = t["x"].double()
    u = U[c.DTYPE]
    slack = 1.01 * u * ((x * x).abs() + (x * x + x).abs()) * x.abs()
    return (rounded((x * x + x) * x, c.DTYPE, slack + TINY[c.DTYPE] * (1 + x.abs())),)


def softmax(t: Inputs, c) -> tuple[Expected, ...]:
    x = t["x"].double()
    y = torch.softmax(x, -1)
    depth = (x.amax(-1, keepdim=True) - x) + x.shape[-1] + 8
    return (rounded(y, c.DTYPE, depth * U["f32"] * y),)


def layernorm(t: Inputs, c) -> tuple[Expected, ...]:
    x, weight, bias = (t[n].double() for n in ("x", "weight", "bias"))
    steps = (x.shape[-1] + 16) * U["f32"]
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + c.EPS)
    normed = (x - mean) * scale
    shifted = steps * x.abs().mean(-1, keepdim=True) * scale
    slack = (shifted + steps * normed.abs()) * weight.abs() + 4 * U["f32"] * bias.abs()
    return (rounded(normed * weight + bias, c.DTYPE, slack),)


def rmsnorm(t: Inputs, c) -> tuple[Expected, ...]:
    if c.DTYPE == "bf16":
        return residual_rmsnorm(t, c)
    h, mix, gamma = (t[n].double() for n in ("h", "mix", "gamma"))
    normed = rms(h + mix, c.EPS)
    slack = (h.shape[-1] + 12) * U["f32"] * normed.abs() * gamma.abs()
    # the sum's own rounding, relative to its terms
    slack = slack + U["f32"] * (h.abs() + mix.abs()) * gamma.abs() * 2
    return rounded(h + mix, c.DTYPE), rounded(normed * gamma, c.DTYPE, slack)


def total(t: Inputs, c) -> tuple[Expected, ...]:
    x = t["x"].double()
    return (rounded(x.sum()[None], "f32", x.numel() * U["f32"] * x.abs().sum()[None]),)


def activations(t: Inputs, c) -> tuple[Expected, ...]:
    """Within the error that the header of the emitted code states: silu 5 units in the last
    place, gelu 4 of its argument, tanh 4; a unit is at most 2 u."""
    x, y = t["x"].double(), t["y"].double()
    silu, gelu = x * torch.sigmoid(x), torch.nn.functional.gelu(y)
    u = U["f32"]
    slack = 10 * u * silu.abs() * gelu.abs() + 8 * u * y.abs() * silu.abs()
    more = x > y
    kept = torch.where(more, x.clamp(-0.5, 0.75), torch.tanh(y))
    if c.DTYPE == "bf16":  # each function's result is rounded to bf16, then their product
        slack = slack + 2.02 * U["bf16"] * (silu * gelu).abs()
    return (
        rounded(silu * gelu, c.DTYPE, slack + 1e-37),
        rounded(kept, c.DTYPE, 8 * u * kept.abs()),
        Expected(more.double(), torch.zeros_like(x)),
    )


REFERENCES: dict[str, Reference] = {
    "chain": any_chain,
    "softmax": softmax,
    "layernorm": layernorm,
    "layernorm_rows": layernorm,
    "layernorm_flow": layernorm,
    "rmsnorm": rmsnorm,
    "rmsnorm_rows": rmsnorm,
    "total": total,
    "activations": activations,
}
