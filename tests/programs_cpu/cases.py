"""The CPU programs at small sizes, and inputs for them: for faults, interpreted unit by unit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from programs.reference import inputs
from tilefoundry.ops.base import torch_dtype

SMALL: Mapping[str, Mapping[str, object]] = {
    "activations": {"N": 20},
    "bmm_gelu": {"B": 2, "M": 14, "K": 8},
    "chain": {"N": 70},
    "conv3x3": {"H": 4, "W": 14, "C": 4, "F": 64},
    "gemm_amx": {"M": 32, "K": 64, "KC": 32},
    "gemm_avx2": {"M": 48, "N": 32},
    "gemm_avx512": {},
    "gemm_bf16": {"K": 16},
    "gemm_int8": {"K": 16},
    "gemv": {"N": 12, "K": 64},
    "layernorm": {"ROWS": 3, "COLS": 20},
    "layernorm_flow": {"ROWS": 3, "COLS": 20},
    "layernorm_rows": {"ROWS": 3, "COLS": 20},
    "projection_amx": {"N": 192, "K": 16, "WORKERS": 3},
    "rmsnorm": {"ROWS": 3, "COLS": 20},
    "rmsnorm_rows": {"ROWS": 3, "COLS": 20},
    "softmax": {"ROWS": 3, "COLS": 20},
    "total": {"N": 70},
}


def path(name: str) -> str:
    """The file of a program."""
    return str(Path(__file__).parent / f"{name}.py")


def drawn(types, seed=0):
    """Normal floats, and integers over their whole range."""
    made = inputs({n: t for n, t in types.items() if t.dtype.is_float}, seed)
    stream = torch.Generator().manual_seed(seed)
    for name, type in types.items():
        if not type.dtype.is_float:
            dtype = torch_dtype(type.dtype)
            info = torch.iinfo(dtype)
            made[name] = torch.randint(
                info.min, info.max + 1, type.shape, generator=stream, dtype=dtype
            )
    return made
