"""Distributions, loops, reductions and scopes, each in a small program, against the evaluator."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import pytest
import torch
from test_cpu_programs import run

from programs.reference import inputs
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source


class Form(NamedTuple):
    """``body`` of f(x) inside a scope of ``cores`` and one of ``lanes``."""

    shape: tuple[int, ...]
    body: str
    dtype: str = "f32"
    cores: tuple[int, ...] = (2,)
    lanes: tuple[int, ...] = (8,)
    exact: bool = True
    after: str = ""
    """The result that the body updates: its name and shape."""
    part: str = ""
    """Which cores execute the body, as ``some``."""


FORMS = {
    "rows of cores": Form((4, 16), """
        r = tf.reshard(x, (2 @ cores.c0, 2, 2, 8 @ lanes.l0), "rmem")
        return tf.reshard(r + r, (4, 16), "gmem")"""),
    "columns apart, rows together": Form((16, 6), """
        r = tf.reshard(x, (2 @ cores.c0, 8 @ lanes.l0, 6), "rmem")
        return tf.reshard(r * r, (16, 6), "gmem")"""),
    "lanes of two axes": Form((4, 12), """
        r = tf.reshard(x, (2 @ cores.c0, 2 @ lanes.l0, 3, 4 @ lanes.l1), "rmem")
        return tf.reshard(r - 1.0, (4, 12), "gmem")""", lanes=(2, 4)),
    "a transpose": Form((16, 8), """
        r = tf.reshard(x, (16, 8 @ lanes.l0), "rmem")
        return tf.reshard(tf.transpose(r, (1, 0)), (8, 16), "gmem")""", cores=(1,)),
    "a transposed store": Form((16, 24), """
        for n in range(cores.c0, 3, 2):
            r = tf.reshard(x[:, n * 8:n * 8 + 8], (16, 8 @ lanes.l0), "rmem")
            out = tf.insert_slice(out, tf.transpose(r, (1, 0)), (n * 8, 0))""",
        after="out (24, 16)"),
    "sums over both kinds of axis": Form((6, 40), """
        r = tf.reshard(x, (2 @ cores.c0, 3, 5, 8 @ lanes.l0), "rmem")
        row = tf.reshard(tf.reduce(r, (1,), True, "sum"), (2 @ cores.c0, 3, 1))
        return tf.reshard(r / row, (6, 40), "gmem")""", exact=False),
    "over one lane axis of two": Form((4, 8), """
        r = tf.reshard(x, (2 @ cores.c0, 2 @ lanes.l0, 2, 4 @ lanes.l1), "rmem")
        most = tf.reshard(tf.reduce(r, (1,), True, "max"), (2 @ cores.c0, 2 @ lanes.l0, 1))
        return tf.reshard(r - most, (4, 8), "gmem")""", lanes=(2, 4)),
    "a tile too long to write out": Form((3, 800), """
        for row in range(cores.c0, 3, 2):
            r = tf.reshard(x[row:row + 1, :], (1, 100, 8 @ lanes.l0), "rmem")
            most = tf.reshard(tf.reduce(r, (1,), True, "max"), (1, 1))
            e = tf.exp(r - most)
            total = tf.reshard(tf.reduce(e, (1,), True, "sum"), (1, 1))
            out = tf.insert_slice(out, e / total, (row, 0))""", exact=False,
        after="out (3, 800)"),
    "sums of long columns": Form((70, 16), """
        r = tf.reshard(x, (70, 2, 8 @ lanes.l0), "rmem")
        return tf.reshard(tf.reduce(r, (0,), False, "sum"), (16,), "gmem")""", cores=(1,),
        exact=False),
    "least of long integer columns": Form((70, 16), """
        r = tf.reshard(x, (70, 2, 8 @ lanes.l0), "rmem")
        return tf.reshard(tf.reduce(r, (0,), False, "min"), (16,), "gmem")""", "i32", (1,)),
    "mean, product, magnitude": Form((6, 8), """
        r = tf.reshard(x, (6, 8 @ lanes.l0), "rmem")
        a = tf.reduce(r, (0,), False, "mean") + tf.reduce(r, (0,), False, "prod")
        return tf.reshard(a * tf.reduce(r, (0,), False, "abs_max"), (8,), "gmem")""", cores=(1,),
        exact=False),
    "any and all": Form((6, 8), """
        r = tf.reshard(x, (6, 8 @ lanes.l0), "rmem") > 0.3
        a = tf.reduce(r, (0,), False, "any")
        b = tf.reduce(tf.logical_not(r), (0,), False, "all")
        return tf.reshard(tf.cast(a, "i32") - tf.cast(b, "i32"), (8,), "gmem")""", cores=(1,)),
    "bf16 sums round once": Form((4, 64), """
        r = tf.reshard(x, (2 @ cores.c0, 2, 64), "rmem")
        return tf.reshard(tf.reduce(r, (1,), True, "sum"), (4, 1), "gmem")""", "bf16",
        exact=False),
    "integer sums are i64": Form((5, 8), """
        r = tf.reshard(x, (5, 8 @ lanes.l0), "rmem")
        s = tf.reshard(tf.reduce(r, (0, 1), False, "sum"), ())
        return tf.reshard(tf.reshape(s, (1,)), (1,), "gmem")""", "i8", (1,)),
    "a grid of cores, summed along one axis": Form((4, 6, 8), """
        r = tf.reshard(x, (2 @ cores.c0, 2, 3 @ cores.c1, 2, 8 @ lanes.l0), "rmem")
        s = tf.reshard(tf.reduce(r, (1, 2), False, "sum"), (2 @ cores.c0, 2))
        return tf.reshard(s, (4,), "gmem")""", cores=(2, 3), exact=False),
    "cores that meet in a loop": Form((5, 2, 8), """
        for n in range(5):
            r = tf.reshard(x[n:n + 1], (1, 2 @ cores.c0, 8 @ lanes.l0), "rmem")
            s = tf.reshard(tf.reduce(r, (1, 2), True, "sum"), (1, 1, 1))
            out = tf.insert_slice(out, r * s, (n, 0, 0))""", exact=False,
        after="out (5, 2, 8)"),
    "numbers of elements": Form((4, 8), """
        n = tf.arange(Tensor[(8,), "f32", (8 @ lanes.l0,), "rmem"], 0.5, 0.25)
        m = tf.arange(Tensor[(4,), "i32", (2 @ cores.c0, 2), "rmem"], 10, -3)
        r = tf.reshard(x, (2 @ cores.c0, 2, 8 @ lanes.l0), "rmem")
        kept = tf.where(tf.cast(m, "f32")[:, None] > n * 4.0, r, n)
        return tf.reshard(kept, (4, 8), "gmem")"""),
    "padding before and behind": Form((13,), """
        r = tf.reshard(tf.pad(x, (3, 8), 7.0), (3, 8 @ lanes.l0), "rmem")
        return tf.reshard(r, (24,), "gmem")""", cores=(1,)),
    "one value for all": Form((8,), """
        r = tf.reshard(x[3:4], (1,), "rmem")
        s = tf.reshard(x, (8 @ lanes.l0,), "rmem")
        return tf.reshard(s * r, (8,), "gmem")""", "f16", (1,)),
    "an intermediate in memory": Form((32,), """
        made = tf.reshard(tf.reshard(x, (4, 8 @ lanes.l0), "rmem") + 1.0, (32,), "gmem")
        r = tf.reshard(made[8:24], (2, 8 @ lanes.l0), "rmem")
        return tf.reshard(r * 2.0, (16,), "gmem")""", cores=(1,)),
    "regrouped on the way out": Form(
        (4, 16),
        """
        r = tf.reshard(x, (4, 2, 8 @ lanes.l0), "rmem")
        for n in range(3):
            out = tf.insert_slice(out, tf.reshape(r * 2.0, (64,)), (n * 64,))""",
        cores=(1,),
        after="out (192,)",
    ),
    "regrouped in registers": Form(
        (4, 4, 8),
        """
        r = tf.reshard(x, (4, 4, 8 @ lanes.l0), "rmem")
        s = tf.reshape(r, (2, 8, 8)) + tf.reshape(r, (2, 8, 8))
        return tf.reshard(tf.reshape(s * 2.0, (16, 8)), (16, 8), "gmem")""",
        cores=(1,),
    ),
    "a part of the cores": Form((3, 8), """
        r = tf.reshard(x[some.c0:some.c0 + 1, :], (1, 8 @ lanes.l0), "rmem")
        out = tf.insert_slice(out, r, (some.c0, 0))""", cores=(4,), after="out (3, 8)",
        part="[1:]"),
}  # fmt: skip


def text(form):
    made = "" if not form.after else (
        f'out = tf.empty(Tensor[{form.after.partition(" ")[2]}, "{form.dtype}"])'
    )  # fmt: skip
    scopes = []
    for level, shape in (("core", form.cores), ("lane", form.lanes)):
        names = tuple(f"{level[0]}{i}" for i in range(len(shape)))
        indent = "    " * len(scopes)
        scopes.append(
            f'{indent}with Mesh(("{level}",), layout={shape}, names={names}) as {level}s:'
        )
        if level == "core" and form.part:
            scopes.append(f"    with cores{form.part} as some:")
    lines = [made, *scopes, textwrap.indent(textwrap.dedent(form.body), "    " * len(scopes))]
    lines += ["return out"] if form.after else []
    core, lane = (torch.Size(s).numel() for s in (form.cores, form.lanes))
    return (
        "from tilefoundry.dsl import *\nfrom tilefoundry.target import CpuTarget\n\n"
        f'@module(entry="f", target=CpuTarget(), topologies=(Topology("core", {core}), '
        f'Topology("lane", {lane})))\nclass Form:\n    @func\n'
        f'    def f(x: Tensor[{form.shape}, "{form.dtype}"]):\n'
        + textwrap.indent("\n".join(lines), " " * 8)
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_right(name, tmp_path):
    form = FORMS[name]
    path = tmp_path / "form.py"
    path.write_text(text(form))
    loaded = load_source(str(path), None, {})
    types = {p.name: p.tensor for p in loaded.module.funcs["f"].params}
    given = inputs(types)
    if form.dtype.startswith("i"):
        given = {k: torch.arange(v.numel()).view(v.shape).to(v.dtype) - 9 for k, v in given.items()}
    _, outs = run(loaded, given=list(given.values()))
    wanted = evaluate(loaded.module, "f", list(given.values()), {}, "cpu")
    wanted = wanted if isinstance(wanted, tuple | list) else [wanted]
    for out, want in zip(outs, wanted, strict=True):
        if form.exact:
            assert torch.equal(out, want)
        else:  # sums in another order
            size = 2.0**-8 if form.dtype == "bf16" else 2.0**-18
            torch.testing.assert_close(out.double(), want.double(), rtol=size, atol=size)
