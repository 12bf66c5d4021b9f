"""Units evaluated in one batch against each unit by hand, and against units one at a time."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from programs.sizes import path
from tilefoundry.evaluate import evaluate, stack
from tilefoundry.lang.load import load_source

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 6), Topology("thread", 32)),
)
class Program:
{more}
    @func
    def f(x: Tensor[(12, 8), "{dtype}"]):
        out = tf.empty(Tensor[(6, {size}), "{result}"])
        with Mesh(("cta",), layout=(2, 3), names=("a", "b")) as cta:
{body}
            out = tf.insert_slice(out, tf.reshape(row, (1, {size})), (cta.a * 3 + cta.b, 0))
        return out
"""


@dataclass(frozen=True)
class Case:
    """A body that makes ``row`` of each unit, and the row of unit (a, b) by hand."""

    body: str
    row: Callable[[Any, int, int], Any]
    dtype: str = "f32"
    result: str = ""
    more: str = ""

    def load(self, tmp_path, size):
        body = textwrap.indent(textwrap.dedent(self.body).strip("\n"), " " * 12)
        text = HEAD.format(
            body=body,
            size=size,
            dtype=self.dtype,
            result=self.result or self.dtype,
            more=textwrap.indent(textwrap.dedent(self.more), "    "),
        )
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        return load_source(str(path), None, {})


def repeated(x, trips):
    """x doubled and shifted by one, ``trips`` times."""
    for _ in range(trips):
        x = x * 2 + 1
    return x


def f8(x):
    return x.to(torch.float8_e4m3fn)


HALVE = """
@func
def halve(y: Tensor[(8,), "f32"]):
    return y * 0.5
"""
CASES = {
    "a row each": Case("row = x[cta.a * 3 + cta.b] * 2.0", lambda x, a, b: x[a * 3 + b] * 2),
    "axes that differ": Case("row = x[cta.a] + x[cta.b + 2]", lambda x, a, b: x[a] + x[b + 2]),
    "one with all": Case("row = x[cta.b] - x[0]", lambda x, a, b: x[b] - x[0]),
    "ranks that differ": Case(
        "row = x[cta.b:cta.b + 2] + x[cta.a]", lambda x, a, b: x[b : b + 2] + x[a]
    ),
    "windows on both axes": Case(
        "row = x[cta.b * 2:cta.b * 2 + 3, cta.a:cta.a + 5]",
        lambda x, a, b: x[b * 2 : b * 2 + 3, a : a + 5],
    ),
    "windows of windows": Case(
        "row = x[cta.b * 3:cta.b * 3 + 6][cta.a * 2:cta.a * 2 + 4, cta.b + 1]",
        lambda x, a, b: x[b * 3 : b * 3 + 6][a * 2 : a * 2 + 4, b + 1],
    ),
    "a fixed window of windows": Case(
        "row = x[cta.b:cta.b + 4][1:3, 2:4]", lambda x, a, b: x[b : b + 4][1:3, 2:4]
    ),
    "strides": Case(
        "row = tf.slice(x, (cta.b, 1), (4, 3), (cta.a + 1, 2))",
        lambda x, a, b: x[b : b + 3 * (a + 1) + 1 : a + 1, 1:6:2],
    ),
    "index with remainders": Case(
        "row = x[(cta.a * 5 + cta.b * 7) % 11 // 2]", lambda x, a, b: x[(a * 5 + b * 7) % 11 // 2]
    ),
    "numbers": Case("row = x[0] * cta.b + cta.a", lambda x, a, b: x[0] * b + a),
    "ragged": Case(
        "row = tf.reduce(x[0:cta.b + 1], (0,), False, 'sum')", lambda x, a, b: x[: b + 1].sum(0)
    ),
    "ragged, then joined": Case(
        "row = tf.concat(x[0:cta.b + 1], x[cta.b + 1:4], axis=0)", lambda x, a, b: x[:4]
    ),
    "arange": Case(
        'row = tf.arange(Tensor[(8,), "i32"], cta.b * 4)',
        lambda x, a, b: torch.arange(b * 4, b * 4 + 8, dtype=torch.int32),
        result="i32",
    ),
    "where": Case(
        "row = tf.where(x[cta.b] > x[cta.a + 3], x[cta.b], x[5])",
        lambda x, a, b: torch.where(x[b] > x[a + 3], x[b], x[5]),
    ),
    "bool": Case(
        "row = tf.logical_and(x[cta.b] > 0.0, x[cta.a + 4] < 1.0)",
        lambda x, a, b: (x[b] > 0) & (x[a + 4] < 1),
        result="bool",
    ),
    "fp8": Case(
        "row = x[cta.b * 2:cta.b * 2 + 2]", lambda x, a, b: x[b * 2 : b * 2 + 2], "fp8e4m3"
    ),
    "to fp8 and back": Case(
        'row = tf.cast(tf.cast(x[cta.b], "fp8e4m3"), "f32")', lambda x, a, b: f8(x[b]).float()
    ),
    "integers": Case(
        "row = x[cta.a] // 3 + x[cta.b] % 5", lambda x, a, b: x[a] // 3 + x[b] % 5, "i32"
    ),
    "transpose": Case(
        "row = tf.transpose(x[cta.b:cta.b + 3], (1, 0))", lambda x, a, b: x[b : b + 3].T
    ),
    "tuple": Case(
        "low, high = tf.split(x[cta.b:cta.b + 2], 2, 1)\nrow = tf.concat(high, low, axis=0)",
        lambda x, a, b: torch.cat([x[b : b + 2, 4:], x[b : b + 2, :4]]),
    ),
    "topk": Case(
        "best, at = tf.topk(x[cta.b:cta.b + 2], 3, 1)\nrow = best",
        lambda x, a, b: x[b : b + 2].sort(dim=1, descending=True).values[:, :3],
    ),
    "matmul": Case(
        "row = tf.matmul(x[cta.a:cta.a + 4], x[cta.b:cta.b + 8])",
        lambda x, a, b: x[a : a + 4] @ x[b : b + 8],
    ),
    "matmul with one for all": Case(
        "row = tf.matmul(x[0:4], x[cta.b:cta.b + 8])", lambda x, a, b: x[:4] @ x[b : b + 8]
    ),
    "matrix and vector": Case(
        "row = tf.matmul(x[cta.a:cta.a + 4], x[cta.b])", lambda x, a, b: x[a : a + 4] @ x[b]
    ),
    "einsum": Case(
        "row = tf.einsum('ij,kj->ik', x[cta.a:cta.a + 4], x[cta.b:cta.b + 2])",
        lambda x, a, b: x[a : a + 4] @ x[b : b + 2].T,
    ),
    "gather": Case(
        'at = tf.cast(x[cta.b] * 0.0, "i64") + cta.b\nrow = tf.index_select(x[cta.a:], at, 0)',
        lambda x, a, b: x[a:][[b] * 8],
    ),
    "own part": Case(
        'rows = tf.reshard(x, (12, 2 @ cta.a, 4), "rmem")\nrow = tf.local(rows)[cta.b]',
        lambda x, a, b: x[b, a * 4 : a * 4 + 4],
    ),
    "own part, split between two modes": Case(
        'rows = tf.reshard(x, (2, 3 @ cta.b, 2, 2 @ cta.a, 4), "rmem")\nrow = tf.local(rows)',
        lambda x, a, b: x.reshape(2, 3, 2, 2, 4)[:, b, :, a],
    ),
    "call": Case("row = halve(x[cta.b])", lambda x, a, b: x[b] * 0.5, more=HALVE),
    "own destination": Case(
        """
        row = tf.zeros(Tensor[(4, 4), "f32", "rmem"])
        row = tf.insert_slice(row, x[cta.b:cta.b + 1, 0:2], (cta.a * 2, cta.b))
        """,
        lambda x, a, b: torch.zeros(4, 4).index_put_(
            (torch.tensor(a * 2), torch.arange(b, b + 2)), x[b, :2]
        ),
    ),
    "trips": Case(
        """
        row = x[cta.a]
        for i in range(cta.a + cta.b):
            row = row * 2.0 + 1.0
        """,
        lambda x, a, b: repeated(x[a], a + b),
    ),
    "trips in trips": Case(
        """
        row = x[0]
        for i in range(cta.b):
            for j in range(i, cta.a + 2):
                row = row * 2.0 + x[i + j]
        """,
        lambda x, a, b: nested(x, a, b),
    ),
    "trips of different steps": Case(
        """
        row = tf.zeros(Tensor[(8,), "f32", "rmem"])
        for i in range(cta.b, 12, cta.a + 2):
            row = row + x[i]
        """,
        lambda x, a, b: sum(x[i] for i in range(b, 12, a + 2)),
    ),
    "nothing to do": Case(
        """
        row = x[cta.b]
        for i in range(cta.a * 4, 4):
            row = row + x[i]
        """,
        lambda x, a, b: x[b] + sum((x[i] for i in range(a * 4, 4)), torch.zeros(8)),
    ),
}


def nested(x, a, b):
    row = x[0]
    for i in range(b):
        for j in range(i, a + 2):
            row = row * 2 + x[i + j]
    return row


def values(dtype):
    """Small integers, so that sums and products are exact in any order."""
    whole = torch.randint(-4, 5, (12, 8), generator=torch.Generator().manual_seed(7))
    kind = {"f32": torch.float32, "i32": torch.int32, "fp8e4m3": torch.float8_e4m3fn}[dtype]
    return whole.to(kind)


def agrees(case, device, tmp_path):
    x = values(case.dtype)
    rows = [case.row(x, a, b).reshape(-1) for a, b in itertools.product(range(2), range(3))]
    loaded = case.load(tmp_path, len(rows[0]))
    (out,) = evaluate(loaded.module, loaded.func, [x], device=device)
    assert (out.device.type, out.dtype) == (device, rows[0].dtype)
    for unit, row in enumerate(rows):
        assert out[unit].tolist() == row.tolist(), unit


@pytest.mark.parametrize("limit", [1 << 30, 200, 0], ids=["together", "in parts", "alone"])
@pytest.mark.parametrize("name", CASES)
def test_each_unit_by_hand(name, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "LIMIT", limit)
    agrees(CASES[name], "cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device")
@pytest.mark.parametrize("name", CASES)
def test_each_unit_by_hand_on_a_device(name, tmp_path):
    agrees(CASES[name], "cuda", tmp_path)


def test_steps_cost_the_same_for_many_units_as_for_one(monkeypatch):
    """16 units of 4 steps multiply 4 times, and one by one 64 times."""
    calls: list[Any] = []
    plain = torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda a, b: calls.append(a.shape) or plain(a, b))
    sizes = {"M": 512, "N": 1024, "K": 256, "GROUP": 4}
    loaded = load_source(path("gemm_optimal"), None, sizes)
    a, b = torch.ones(512, 256).bfloat16(), torch.ones(256, 1024).bfloat16()
    for limit, count in ((1 << 30, 4), (0, 64)):
        calls.clear()
        monkeypatch.setattr(stack, "LIMIT", limit)
        (c,) = evaluate(loaded.module, loaded.func, [a, b])
        assert len(calls) == count
        assert bool((c == 256).all())
