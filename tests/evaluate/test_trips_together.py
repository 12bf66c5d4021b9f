"""Trips evaluated together against the same trips in turn, bit for bit, and what is not."""

from __future__ import annotations

import random
import textwrap

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import independent
from tilefoundry.evaluate.run import Evaluator
from tilefoundry.lang.load import load_source

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

ROWS, COLS = {rows}, {cols}

@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 3), Topology("lane", 4)))
class Program:
    @func
    def f(x: Tensor[(ROWS, COLS), "f32"], w: Tensor[(min(COLS, 300), COLS), "f32"]):
        out = tf.empty(Tensor[(ROWS, COLS), "f32"])
        with Mesh(("core",), layout=(3,), names=("c",)) as core:
{body}
        return out
"""
ROWS, COLS = 23, 41


def loaded(tmp_path, body, rows=ROWS, cols=COLS):
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 12)
    text = HEAD.format(rows=rows, cols=cols, body=body)
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    return load_source(str(path), None, {})


def both(tmp_path, body, rows=ROWS, cols=COLS):
    """The result with trips together and in turn, and whether any were together."""
    program = loaded(tmp_path, body, rows, cols)
    draw = torch.Generator().manual_seed(len(body))
    inputs = [
        torch.randn((rows, cols), generator=draw),
        torch.randn((min(cols, 300), cols), generator=draw),
    ]
    found = []
    for in_turn in (False, True):
        evaluator = Evaluator(program.module, "cpu")
        evaluator.in_turn = in_turn
        found.append((*evaluator.call(program.module.funcs["f"], inputs, {}), evaluator.batched))
    (together, batched), (turn, none) = found
    assert not none
    torch.testing.assert_close(together, turn, rtol=0, atol=0, equal_nan=True)
    return together, batched, inputs


# Random bodies: a chain of operations on a window of x, all of which add, round or wait for
# nobody but their own trip.

STEPS = [
    "v = v * v + 1.25",
    "v = v - tf.reduce(v, (1,), True, 'mean')",
    "v = v / (tf.reduce(tf.square(v), (0, 1), True, 'sum') + 1.0)",
    "v = v + tf.reduce(v, (0,), True, 'prod')",
    "v = tf.softmax(v, 1)",
    "v = tf.softmax(v, axis=0)",
    "v = tf.sigmoid(v)",
    "v = tf.silu(v) + tf.exp2(v * 0.5)",
    "v = tf.gelu(v)",
    "v = tf.softplus(v)",
    "v = tf.rms_norm(v, w[0])",
    "v = tf.layer_norm(v, w[1], w[2], 1)",
    "v = tf.exp(v * 0.1) + tf.sin(v)",
    "v = tf.matmul(v, w)",
    "v = tf.cast(tf.matmul(tf.cast(v, 'bf16'), tf.cast(w, 'bf16'), out_dtype='f32'), 'f32')",
    "v = tf.transpose(tf.softmax(tf.transpose(v, (1, 0)), 0), (1, 0))",
    "v = tf.cumsum(v, 1) * 0.1",
    "v = tf.where(v > 0.0, v, v * 0.5)",
    "v = v * r + 0.5",
    "v = tf.cast(tf.cast(v, 'bf16'), 'f32')",
    "v = tf.concat(v[:, 20:], v[:, :20], axis=1)",
    "v = tf.maximum(v, tf.reduce(x[r:r + 1, 3:9], (1,), True, 'max'))",
]
LOOPS = [
    ("for r in range(ROWS):", "r", "1"),
    ("for r in range(core.c, ROWS, 3):", "r", "1"),
    ("for r in range(core.c * 7, core.c * 7 + 7):", "r", "1"),
    ("for r in range(0, 20, 4):", "r", "4"),
    ("for r in range(0, 21, 3):", "20 - r - 2 + 2", "3"),
]


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies_have_the_same_bits(tmp_path, seed):
    draw = random.Random(seed)
    loop, start, size = draw.choice(LOOPS)
    steps = draw.sample(STEPS, 4)
    lines = [loop, f"    v = x[{start}:{start} + {size}]", *(f"    {s}" for s in steps)]
    lines.append(f"    out = tf.insert_slice(out, v, ({start}, 0))")
    _, batched, _ = both(tmp_path, "\n".join(lines))
    assert batched


# Structures: what may be together, and what is in turn, each with its value by hand.


TOGETHER = {
    "tiles of a grid": (
        """
        for t in range(4 * 3):
            v = x[t // 3 * 5:t // 3 * 5 + 5, t % 3 * 13:t % 3 * 13 + 13] * 2.0
            out = tf.insert_slice(out, v, (t // 3 * 5, t % 3 * 13))
        """,
        lambda x, w: x[:20, :39] * 2,
    ),
    "loops in loops": (
        """
        for r in range(ROWS):
            for c in range(0, 41, 8):
                for k in range(c, min(41, c + 8)):
                    out = tf.insert_slice(out, x[r:r + 1, k:k + 1] * 2.0, (r, k))
        """,
        lambda x, w: x * 2,
    ),
    "edges": (
        """
        for r in tf.tile(ROWS, 4):
            out = tf.insert_slice(out, x[r, :] * 2.0, (r.start, 0))
        """,
        lambda x, w: x * 2,
    ),
    "a destination read where it is written": (
        """
        out = x + 0.0
        for r in range(ROWS):
            out = tf.insert_slice(out, out[r:r + 1] * 2.0, (r, 0))
            out = tf.insert_slice(out, out[r:r + 1, 1:3] * 2.0, (r, 2))
        """,
        lambda x, w: torch.cat([x[:, :2] * 2, x[:, 1:3] * 4, x[:, 4:] * 2], 1),
    ),
    "an argument's copy": (
        """
        out = x
        for r in range(1, ROWS):
            out = tf.insert_slice(out, x[r - 1:r] * 2.0, (r, 0))
        """,
        lambda x, w: torch.cat([x[:1], x[:-1] * 2]),
    ),
    "sums within a trip": (
        """
        for r in range(ROWS):
            total = tf.zeros(Tensor[(1, 1), "f32"])
            for c in range(r + 1):
                total = total + x[r:r + 1, c:c + 1]
            out = tf.insert_slice(out, total + x[r:r + 1] * 0.0, (r, 0))
        """,
        lambda x, w: torch.stack([x[r, : r + 1].cumsum(0)[-1:].expand(41) for r in range(23)]),
    ),
    "a tile of each trip": (
        """
        for r in range(ROWS):
            tile = tf.zeros(Tensor[(3, 41), "f32"])
            for k in range(3):
                tile = tf.insert_slice(tile, x[r:r + 1] * k, (k, 0))
            out = tf.insert_slice(out, tf.reduce(tile, (0,), True, "max"), (r, 0))
        """,
        lambda x, w: torch.maximum(x * 2, x * 0),
    ),
    "units that take turns": (
        """
        for r in range(core.c, ROWS, 3):
            out = tf.insert_slice(out, x[r:r + 1] * (core.c + r), (r, 0))
        """,
        lambda x, w: x * torch.tensor([r % 3 + r for r in range(23)])[:, None],
    ),
    "units of two levels": (
        """
        with Mesh(("lane",), layout=(4,), names=("l",)) as lane:
            for r in range(core.c, ROWS, 3):
                at = lane.l * 10
                out = tf.insert_slice(out, x[r:r + 1, at:at + 10] * 2.0, (r, at))
        """,
        lambda x, w: x[:, :40] * 2,
    ),
    "two destinations": (
        """
        more = tf.empty(Tensor[(ROWS, COLS), "f32"])
        for r in range(ROWS):
            out = tf.insert_slice(out, x[r:r + 1] * 2.0, (r, 0))
            more = tf.insert_slice(more, x[r:r + 1] * 3.0, (22 - r, 0))
        out = out + more
        """,
        lambda x, w: x * 2 + x.flip(0) * 3,
    ),
    "long rows added at once": (
        """
        for r in range(4):
            out = tf.insert_slice(out, tf.reduce(x[r:r + 1], (1,), True, "sum"), (r, 0))
        """,
        None,
    ),
}
IN_TURN = {
    "a sum over trips": (
        """
        total = x[0:1]
        for r in range(1, ROWS):
            total = total + x[r:r + 1]
        out = total
        """,
        lambda x, w: x.cumsum(0)[-1:],
    ),
    "a row made of the one before": (
        """
        out = x
        for r in range(1, ROWS):
            out = tf.insert_slice(out, out[r - 1:r] + 1.0, (r, 0))
        """,
        lambda x, w: x[:1] + torch.arange(23.0)[:, None] * 1.0,
    ),
    "writes over one another": (
        """
        for r in range(ROWS - 1):
            out = tf.insert_slice(out, x[r:r + 2] * (r + 1), (r, 0))
        """,
        lambda x, w: x * torch.tensor([*range(1, 23), 22.0])[:, None],
    ),
    "a copy that is written where trips differ": (
        """
        out = x * 0.0
        for r in range(core.c, 22, 3):
            new = tf.insert_slice(out, x[r:r + 1], (r, 0))
            copy = new
            for k in range(1):
                copy = tf.insert_slice(copy, x[r:r + 1, core.c:core.c + 1], (22, core.c))
            v = new[r:r + 1] * 3.0 + new[22:23]
            out = tf.insert_slice(new, v, (r, 0))
        """,
        lambda x, w: x[:22] * 3,
    ),
    "an older version read later": (
        """
        out = x
        for r in range(ROWS - 1):
            new = tf.insert_slice(out, x[r:r + 1] * 2.0, (r, 0))
            out = tf.insert_slice(new, out[r:r + 1] * 5.0, (r, 0))
        """,
        lambda x, w: torch.cat([x[:-1] * 5, x[-1:]]),
    ),
    "the whole destination read": (
        """
        out = x
        for r in range(3):
            out = tf.insert_slice(out, out[:, 0:1] * 2.0, (0, 0))
            out = tf.insert_slice(out, tf.reduce(out, (0,), True, "max"), (r, 0))
        """,
        None,
    ),
    "windows that meet at an edge": (
        """
        for r in range(4):
            out = tf.insert_slice(out, x[r * 5:r * 5 + 6] * (r + 1), (r * 5, 0))
        """,
        lambda x, w: x[:21] * torch.tensor([1 + min(3, n // 5) for n in range(21)])[:, None],
    ),
}


@pytest.mark.parametrize("budget", [1 << 24, 3000], ids=["all", "some"])
@pytest.mark.parametrize("name", [*TOGETHER, *IN_TURN])
def test_structures(tmp_path, monkeypatch, name, budget):
    monkeypatch.setattr(independent, "BUDGET", budget)
    body, by_hand = {**TOGETHER, **IN_TURN}[name]
    cols = 1 << 15 if name.startswith("long rows") else COLS
    got, batched, inputs = both(tmp_path, body, ROWS, cols)
    assert batched == (name in TOGETHER) or budget < 1 << 24
    if by_hand is not None:
        expected = by_hand(*inputs)
        torch.testing.assert_close(got[: len(expected), : expected.shape[1]], expected)


def test_the_first_refusal_of_the_program_is_the_one_told(tmp_path):
    body = """
    for r in range(ROWS):
        v = tf.gather(x[r:r + 1], tf.cast(x[r:r + 1, 0:1], "i32"), 1)
        n = tf.floor_div(tf.cast(x[r:r + 1, 1:2], "i32"), tf.cast(x[r:r + 1, 2:3], "i32"))
        out = tf.insert_slice(out, v + tf.cast(n, "f32"), (r, 0))
    """
    program = loaded(tmp_path, body)
    x, w = torch.ones(ROWS, COLS), torch.ones(COLS, COLS)
    x[9, 0] = 1000  # no such column
    x[4, 2] = 0
    evaluator = Evaluator(program.module, "cpu")
    with pytest.raises(Refusal) as caught:
        evaluator.call(program.module.funcs["f"], [x, w], {})
    assert [d.code for d in caught.value.diags] == ["divide-by-zero"] and evaluator.batched
    x[4, 2] = 1
    with pytest.raises(Refusal) as caught:
        evaluator.call(program.module.funcs["f"], [x, w], {})
    assert [d.code for d in caught.value.diags] == ["index-out-of-range"]


def test_inputs_stay_as_they_are(tmp_path):
    _, _, (x, w) = both(tmp_path, TOGETHER["an argument's copy"][0])
    draw = torch.Generator().manual_seed(len(TOGETHER["an argument's copy"][0]))
    assert torch.equal(x, torch.randn(x.shape, generator=draw))
    assert torch.equal(w, torch.randn(w.shape, generator=draw))
