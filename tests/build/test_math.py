"""The header's functions against float64, in units of the last place, for several widths."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
import torch

from tilefoundry.build.compiler import compiled
from tilefoundry.build.machine import missing
from tilefoundry.emit.c.program import HEADER
from tilefoundry.emit.source import Source
from tilefoundry.targets.cpu.emit.program import OPTIONS

ERF = np.vectorize(math.erf, otypes=[np.float64])
EXACT = {
    "exp": (np.exp, 2),
    "exp2": (np.exp2, 2),
    "log": (np.log, 3),
    "log2": (np.log2, 3),
    "tanh": (np.tanh, 4),
    "erf": (ERF, 4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
    "silu": (lambda x: x / (1 + np.exp(-x)), 5),
    "softplus": (lambda x: np.where(x > 20, x, np.log1p(np.exp(x))), 4),
    "sqrt": (np.sqrt, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.51),
    "rint": (np.rint, 0),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
}
"""The function in float64, and the largest error in units of the last place."""
PAIRS = {"minimum": np.minimum, "maximum": np.maximum, "fmin": np.fmin, "fmax": np.fmax}
CONVERSIONS = ("bf16", "f16", "fp8e4m3", "fp8e5m2")
TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "fp8e4m3": torch.float8_e4m3fn,
         "fp8e5m2": torch.float8_e5m2}  # fmt: skip


def source(lanes):
    lines = [f"#define TF_LANES {lanes}", '#include "tf_c.h"']
    lines += [
        f"void {name}_all(const f32 *x, f32 *y, long n) {{ for (long i = 0; i < n; "
        f"i += TF_LANES) tf_store_f32(y + i, tf_{name}_f32(tf_load_f32(x + i))); }}"
        for name in (*EXACT, "gelu", "gelu_tanh")
    ]
    lines += [
        f"void {name}_pairs(const f32 *x, f32 *y, long n) {{ for (long i = 0; i < n; "
        f"i += TF_LANES) tf_store_f32(y + i, tf_{name}_f32(tf_load_f32(x + i), "
        f"tf_load_f32(x + n + i))); }}"
        for name in PAIRS
    ]
    for t in CONVERSIONS:
        lines.append(
            f"void {t}_down(const f32 *x, {t} *y, long n) {{ for (long i = 0; i < n; i += "
            f"TF_LANES) tf_store_{t}(y + i, tf_f32_to_{t}(tf_load_f32(x + i))); }}"
        )
        lines.append(
            f"void {t}_up(const {t} *x, f32 *y, long n) {{ for (long i = 0; i < n; i += "
            f"TF_LANES) tf_store_f32(y + i, tf_{t}_to_f32(tf_load_{t}(x + i))); }}"
        )
    lines.append(
        "void bf16_both(const f32 *x, bf16 *y, long n) { bf16v a, b; "
        "for (long i = 0; i < n; i += 2 * TF_LANES) { tf_f32_to_bf16_pair(&a, &b, "
        "tf_load_f32(x + i), tf_load_f32(x + i + TF_LANES)); "
        "tf_store_bf16(y + i, a); tf_store_bf16(y + i + TF_LANES, b); } }"
    )
    return "\n".join(lines) + "\n"


WIDTHS = {
    1: (),
    8: ("avx2", "fma", "f16c"),
    16: ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "fma"),
}


@pytest.fixture(scope="module", params=WIDTHS)
def library(request):
    lanes, needs = request.param, WIDTHS[request.param]
    if missing(needs):
        pytest.skip(f"this machine lacks {' '.join(missing(needs))}")
    flags = tuple(OPTIONS[name] for name in needs)
    files = {"all.c": source(lanes), "tf_c.h": HEADER.read_text()}
    made = compiled(Source("all", "cpu", files, files, "", (), 0, (*flags, "-O2")))
    loaded = ctypes.CDLL(str(made.library))
    loaded.lanes = lanes
    return loaded


def call(library, name, x, dtype):
    y = np.empty(x.shape, dtype)
    args = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size)
    getattr(library, name)(*args)
    return y


def numbers():
    """Finite floats over the whole range, denser around 1, with the special ones."""
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 16, np.uint32).view(np.float32)
    near = np.random.default_rng(1).normal(0, 1, 1 << 16).astype(np.float32)
    wide = np.linspace(-110, 95, 1 << 16).astype(np.float32)
    ends = np.array([0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 88.7, -103.9, 8388609, 1e-45, -1e-45,
                     np.inf, -np.inf, np.nan, 126, -126, 127.99999, 128, -149, -149.5, -150,
                     -151, 127, -127, 125, -125, -148, 0.0625, -0.0625, 1e-38],
                    np.float32)  # fmt: skip
    sixteenths = np.arange(-151 * 16, 129 * 16, dtype=np.float32) / 16
    beside = np.nextafter(sixteenths, np.float32(-np.inf))
    return np.concatenate([bits, near, wide, ends, sixteenths, beside])


@pytest.mark.parametrize("name", EXACT)
def test_a_function_is_as_close_as_stated(library, name):
    function, units = EXACT[name]
    if name == "exp2":  # by tables, where vectors hold them
        units = {8: 1.2, 16: 1.1}.get(library.lanes, units)
    x = numbers()
    got = call(library, f"{name}_all", x, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        want = np.where(np.isneginf(x) & (name == "silu"), np.nan, want)  # -inf / inf
        nearest = want.astype(np.float32)
        unit = np.spacing(np.abs(np.where(np.isfinite(nearest), nearest, 1))).astype(np.float64)
        off = np.abs(got - want) / unit
    tiny = np.abs(got - want) <= (2.0**-140 if name == "silu" else 0)
    same = (got == nearest) | tiny | (np.isnan(got) & np.isnan(want))
    largest = float(np.finfo(np.float32).max)
    edge = np.isinf(got) & (np.abs(want) > largest * (1 - units * 2.0**-23))
    bad = ~(same | edge | (off <= units))
    assert not bad.any(), (x[bad][:4], got[bad][:4], want[bad][:4], off[bad].max())
    assert not np.isinf(got[np.isfinite(want) & (np.abs(want) < largest * 0.999)]).any()


@pytest.mark.parametrize("name", PAIRS)
def test_nan_of_either_goes_through(library, name):
    ends = np.array([1, -1, 0, np.inf, -np.inf, np.nan, 3, -2.5], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(ends, ends))
    both = np.concatenate([x, y])
    got = np.empty(x.size, np.float32)
    args = ctypes.c_void_p(both.ctypes.data), ctypes.c_void_p(got.ctypes.data)
    getattr(library, f"{name}_pairs")(*args, ctypes.c_long(x.size))
    assert np.array_equal(got, PAIRS[name](x, y), equal_nan=True)


@pytest.mark.parametrize(("name", "approximate"), [("gelu", "none"), ("gelu_tanh", "tanh")])
def test_gelu_is_within_four_units_of_x(library, name, approximate):
    x = np.random.default_rng(2).normal(0, 3, 1 << 14).astype(np.float32)
    got = call(library, f"{name}_all", x, np.float32)
    want = torch.nn.functional.gelu(torch.from_numpy(x).double(), approximate=approximate).numpy()
    assert (np.abs(got - want) <= 4 * np.spacing(np.abs(x))).all()


def test_two_vectors_round_as_one_does(library):
    """Zeros, numbers below the normal ones, and both beside ordinary ones."""
    below = np.arange(1, 1 << 12, 7, np.uint32).view(np.float32)
    x = np.concatenate([numbers(), below, -below, np.zeros(64, np.float32)])
    np.random.default_rng(3).shuffle(x)
    x = x[: x.size // 32 * 32]
    one, both = (call(library, f"bf16_{n}", x, np.uint16) for n in ("down", "both"))
    assert np.array_equal(one[~np.isnan(x)], both[~np.isnan(x)])
    assert (both[np.isnan(x)] & 0x7FFF > 0x7F80).all()


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_are_torchs(library, name):
    x = numbers()
    # halves between neighbours, where rounding to even shows
    more = torch.arange(1 << 8 if "fp8" in name else 1 << 16, dtype=torch.int32)
    bits = more.to(torch.uint8) if "fp8" in name else more.to(torch.uint16)
    every = bits.view(TORCH[name]).float()
    half = ((every + every.roll(-1)) / 2).numpy()
    x = np.concatenate([x, half, np.zeros(-(x.size + half.size) % 8, np.float32)])
    most = 448.0 if name == "fp8e4m3" else np.inf  # some versions of torch make NaN beyond it
    want = torch.from_numpy(x.clip(-most, most)).to(TORCH[name])
    width = np.uint8 if "fp8" in name else np.uint16
    got = call(library, f"{name}_down", x, width)
    nan = np.isnan(x) | torch.isnan(want.float()).numpy()
    assert (got == want.view(torch.uint8 if "fp8" in name else torch.uint16).numpy())[~nan].all()
    back = call(library, f"{name}_up", got, np.float32)
    assert np.isnan(back[nan]).all()
    wanted = want.float().numpy()
    assert ((back == wanted) | nan).all()
