"""Decisions that lower to what the program means, or are refused: one small program for each kind
of defect that random programs (``campaign/decided.py``) have shown."""

import sys
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from trapped import refused, right

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import {target}

@module(entry="f", target={target}({device}), topologies=({levels}))
class Program:
    @func
    def f(x: Tensor[(8, 64), "f32"]):
        out = tf.empty(Tensor[{out}, "f32"])
{scopes}
{body}
        return out
"""
CUDA = {"target": "CudaTarget", "device": '"nvidia.h200_sxm"',
        "levels": 'Topology("cta", 4), Topology("thread", 64)'}  # fmt: skip
CTAS = ['with Mesh(("cta",), layout=(4,), names=("c",)) as cta:',
        'with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:']  # fmt: skip
CPU = {"target": "X86Target", "device": '"x86_64.generic"',
       "levels": 'Topology("core", 4), Topology("lane", 8)'}  # fmt: skip
CORES = ['with Mesh(("core",), layout=(4,), names=("c",)) as cta:',
         'with Mesh(("lane",), layout=(8,), names=("l",)) as t:']  # fmt: skip


def program(folder, body, out, kind="cuda"):
    words, scopes = {"cuda": (CUDA, CTAS), "cpu": (CPU, CORES), "cluster": (CUDA, CTAS)}[kind]
    if kind == "cluster":
        words = {**words, "levels": 'Topology("cluster", 2), Topology("cta", 4), '
                                    'Topology("thread", 64)'}  # fmt: skip
        scopes = ['with Mesh(("cluster",), layout=(2,), names=("g",)) as cl:', *scopes]
    heads = "\n".join(" " * (8 + 4 * n) + line for n, line in enumerate(scopes))
    depth = 8 + 4 * len(scopes)
    lines = "\n".join(" " * depth + line for line in body.splitlines())
    path = folder / "program.py"
    path.write_text(HEAD.format(body=lines, scopes=heads, out=out, **words), encoding="utf-8")
    return load_source(str(path), None, {})


ALL = "out = tf.insert_slice(out, {}, (cta.c * {}, 0))"
RIGHT = {
    # there is no memory around a value, and one place for all repetitions of an element
    "a padded value updated": (
        'v = tf.reshard(x, None, "smem")\nw = tf.insert_slice(tf.pad(v, (0, 2)), v, (0, 1))\n'
        + ALL.format("w", 8), (32, 66), "cuda"),
    "a repeated value updated": (
        'v = tf.reshard(x, None, "smem")\nr = tf.repeat_interleave(v, 2, axis=0)\n'
        "w = tf.insert_slice(r, v, (3, 0))\n" + ALL.format("w", 16), (64, 64), "cuda"),
    "a padded parameter updated in a result": (
        "w = tf.insert_slice(tf.pad(x, (2, 2)), x, (0, 4))\n" + ALL.format("w", 8),
        (32, 68), "cpu"),
    # each CTA has its part, and stores that
    "parts in shared memory stored": (
        'v = tf.reshard(x, (8 @ cta.c, 64), "smem")\nout = tf.insert_slice(out, v, (0, 0))',
        (8, 64), "cuda"),
    "parts dealt out, stored": (
        'v = tf.reshard(x, (2, 4 @ cta.c, 64), "smem")\nout = tf.insert_slice(out, v, (0, 0))',
        (8, 64), "cuda"),
    "a value of device memory split over CTAs": (
        'v = tf.reshard(x, (8, 4 @ cta.c, 16), "gmem")\nout = tf.insert_slice(out, v, (0, 0))',
        (8, 64), "cuda"),
    "a value of device memory split over cores": (
        'v = tf.reshard(x, (8, 4 @ cta.c, 16), "gmem")\nout = tf.insert_slice(out, v, (0, 0))',
        (8, 64), "cpu"),
    "the same by a copy of the author's": (
        'v = tf.reshard(x, (8, 32 @ t.l, 2), "rmem")\n'
        'w = tf.schedule((v, tf.empty(Tensor[(8, 64), "f32", (8, 4 @ cta.c, 16), "gmem"])), '
        "op=T.copy())\nout = tf.insert_slice(out, w, (0, 0))", (8, 64), "cuda"),
    "one value stored by all CTAs with a copy of the author's": (
        'v = tf.reshard(x, None, "smem")\n'
        'w = tf.schedule((v, tf.empty(Tensor[(8, 64), "f32"])), op=T.copy_async_bulk())\n'
        "out = tf.insert_slice(out, w, (0, 0))", (8, 64), "cuda"),
    # whoever gives a term of an element takes the element, then each keeps its own
    "a sum over warps, split over them": (
        'v = tf.reshard(x, (2 @ t.w, 4, 64), "rmem")\n'
        's = tf.reshard(tf.reduce(v, (0,), True), (1, 2 @ t.w, 32), "rmem")\n'
        + ALL.format("s", 1), (4, 64), "cuda"),
    "a maximum over lanes of a core, split over them": (
        'v = tf.reshard(x, (8 @ t.l, 64), "rmem")\n'
        's = tf.reshard(tf.reduce(v, (0,), True, kind="max"), (1, 8 @ t.l, 8), "rmem")\n'
        + ALL.format("s", 1), (4, 64), "cpu"),
    "a maximum over cores, split over them": (
        'v = tf.reshard(x, (8, 4 @ cta.c, 8 @ t.l, 2), "rmem")\n'
        's = tf.reshard(tf.reduce(v, (1,), True, kind="max"), (8 @ cta.c, 1), "rmem")\n'
        "out = tf.insert_slice(out, s, (0, 0))", (8, 1), "cpu"),
    # one statement of two roles
    "a copy that all hold, threads divided by a scope": (
        'with t[1:2, 8:16] as part:\n    u = tf.reshard(x[0:1], (1, 64), "rmem")\n    w = u + u\n'
        'v = tf.reshard(x, (8, 32 @ t.l, 2), "rmem")\n' + ALL.format("v", 8), (32, 64), "cuda"),
    "a tile read by more threads than it was made for": (
        'with t[1:2, :] as part:\n    v = tf.reshard(x, None, "smem")\n'
        's = tf.reshard(tf.reduce(v, (1,), True), None, "rmem")\n' + ALL.format("s", 8),
        (32, 1), "cuda"),
    "a load for a whole cluster that nobody reads": (
        'for i in range(3):\n    for j in range(2):\n'
        '        room = tf.empty(Tensor[(8, 64), "f32", "smem"])\n'
        "        v = tf.schedule((x, room), op=T.copy_async_tensor())\n"
        'w = tf.reshard(x, (8, 32 @ t.l, 2), "rmem")\n'
        "out = tf.insert_slice(out, w, ((cl.g * 4 + cta.c) * 8, 0))", (64, 64), "cluster"),
}  # fmt: skip
REFUSED = {
    "parts of a value copied to a place of each": (
        'v = tf.reshard(x, (2 @ t.w, 4, 64), "rmem")\n'
        'w = tf.empty(Tensor[(16, 64), "f32", "smem"])\n'
        "q = tf.schedule((v, w[t.w * 8:t.w * 8 + 8]), op=T.copy())\n"
        + ALL.format('tf.reshard(q, None, "rmem")', 8), (32, 64), "cuda", "lower-exchange"),
    "a padded parameter updated in a result by threads": (
        "w = tf.insert_slice(tf.pad(x, (2, 2)), x, (0, 4))\n" + ALL.format("w", 8), (32, 68),
        "cuda", "sync-device-memory"),
    "a part of a split value at a place of the unit's own": (
        'v = tf.reshard(x, (8 @ cta.c, 64), "rmem")\n' + ALL.format("v", 8), (32, 64), "cuda",
        "unit-value-split"),
    "the same, the place moved by a loop": (
        'v = tf.reshard(x, (8 @ cta.c, 64), "rmem")\nfor i in range(cta.c, 4, 4):\n'
        "    out = tf.insert_slice(out, v, (i * 8, 0))", (32, 64), "cuda", "unit-value-split"),
    "a sum that shared memory would have a part of": (
        'v = tf.reshard(x, (8 @ t.w, 4 @ cta.c, 16), "rmem")\n'
        's = tf.reshard(tf.reduce(v, (0,), True), None, "smem")\n' + ALL.format("s", 1), (4, 64),
        "cuda", "lower-exchange"),
    "parts of clusters read by others": (
        'v = tf.reshard(x, (8 @ cl.g, 64), "smem")\ns = tf.reshard(v, (8, 32 @ t.l, 2), "rmem")\n'
        "out = tf.insert_slice(out, s, ((cl.g * 4 + cta.c) * 8, 0))", (64, 64), "cluster",
        "lower-exchange"),
    "a barrier of a part of a warp": (
        'with t[0:1, 0:8] as part:\n    v = tf.reshard(x, None, "smem")\n'
        '    s = tf.reshard(v, (8 @ part.l, 64), "rmem")\n    ' + ALL.format("s", 8), (32, 64),
        "cuda", "sync-partial-warps"),
    "device memory read behind a meeting of others": (
        'v = tf.reshard(x, (8, 64 // 32, 32 @ t.l), "rmem")\n'
        'w = tf.reshard(v + 1.0, None, "gmem")\nwith t[1:2, :] as part:\n'
        '    u = tf.reshard(x, (4 @ cta.c, 2, 64), "rmem")\n'
        '    s = tf.reshard(tf.reduce(u, (0,), True), (1, 64), "rmem")\n'
        'r = tf.reshard(w, (8 @ t.w, 64), "rmem")\n' + ALL.format("r", 8), (32, 64), "cuda",
        "sync-device-memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_it_is_right(case, tmp_path):
    body, out, kind = RIGHT[case]
    right(program(tmp_path, body, out, kind), policies=("round-robin", "reverse"))


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case, tmp_path):
    body, out, kind, code = REFUSED[case]
    found, text = refused(lambda: finalize(program(tmp_path, body, out, kind)))
    assert found == code
    assert "fix:" in text
