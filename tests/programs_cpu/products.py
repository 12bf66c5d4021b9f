"""What the CPU programs with matrix instructions compute, in float64, with bounds."""

from __future__ import annotations

import torch

from programs.reference import Expected, Inputs, Reference, U, product, rounded


def gemm(t: Inputs, c) -> tuple[Expected, ...]:
    return (product(t["a"].double(), t["b"].double(), "f32"),)


def gemm_bf16(t: Inputs, c) -> tuple[Expected, ...]:
    return (product(t["a"].double(), t["b"].double(), "bf16"),)


def gemm_int8(t: Inputs, c) -> tuple[Expected, ...]:
    value = (t["a"].long() @ t["b"].long()).double()
    return (Expected(value, torch.zeros_like(value)),)


def gemm_amx(t: Inputs, c) -> tuple[Expected, ...]:
    return gemm(t, c) if c.DTYPE == "bf16" else gemm_int8(t, c)


def gemv(t: Inputs, c) -> tuple[Expected, ...]:
    found = product(t["w"].double(), t["x"].double()[:, None], "f32")
    return (Expected(found.value[:, 0], 2 * found.bound[:, 0]),)


def projection(t: Inputs, c) -> tuple[Expected, ...]:
    return (product(t["x"].double(), t["weight"].double().T, "f32"),)


def bmm_gelu(t: Inputs, c) -> tuple[Expected, ...]:
    """GELU's slope is at most 1.13 and its function within 4 units of its argument."""
    x, weight, bias = (t[n].double() for n in ("x", "weight", "bias"))
    found = product(x, weight, "f32")
    sums = found.value + bias
    begun = (c.K + 1) * U["f32"] * bias.abs()  # in each partial sum
    slack = 1.13 * (found.bound + begun + U["f32"] * sums.abs()) + 8 * U["f32"] * sums.abs()
    return (rounded(torch.nn.functional.gelu(sums), "f32", slack),)


def conv3x3(t: Inputs, c) -> tuple[Expected, ...]:
    x = t["x"].double().permute(2, 0, 1)[None]
    weight = t["weight"].double().reshape(3, 3, c.C, c.F).permute(3, 2, 0, 1)

    def conv(a, b):
        return torch.nn.functional.conv2d(a, b, padding=1)[0].permute(1, 2, 0)

    slack = (9 * c.C + 2) * U["f32"] * conv(x.abs(), weight.abs())
    return (rounded(conv(x, weight), "f32", slack),)


REFERENCES: dict[str, Reference] = {
    "gemm_avx2": gemm,
    "gemm_avx512": gemm,
    "gemm_bf16": gemm_bf16,
    "gemm_int8": gemm_int8,
    "gemm_amx": gemm_amx,
    "gemv": gemv,
    "bmm_gelu": bmm_gelu,
    "conv3x3": conv3x3,
    "projection_amx": projection,
}
