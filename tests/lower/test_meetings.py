"""Reductions over units as meetings: whole warps, equally often, and an order for those alone that
differ along the reduction's axes."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.program import For, Issue
from tilefoundry.tir.rewrite import mapped

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from trapped import families, kernel, refused, right, seen

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 4), Topology("thread", 64)))
class Program:
    @func
    def f(x: Tensor[(8, 64), "f32"]):
        out = tf.empty(Tensor[(32, 64), "f32"])
        with Mesh(("cta",), layout=(2, 2), names=("c", "d")) as cta:
            with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:
{body}
                out = tf.insert_slice(out, e, ((cta.c * 2 + cta.d) * 8, 0))
        return out
"""
WRITE = """\
{}a = tf.reshard(x, (8, 2 @ cta.d, 32 @ t.l), "rmem") + 1
{}b = tf.reshard(a, None, "gmem")
""".format
MEET = """\
{}p = tf.reshard(x, (2 @ cta.{}, 4, 32 @ t.l, 2), "rmem")
{}r{} = tf.reshard(tf.reduce(p, (0,), True), (1, 32 @ t.l, 2), "rmem")
""".format
READ = '{}e = tf.reshard(b, (8, 32 @ t.l, 2), "rmem") + {}\n'.format
SUMS = 'e = tf.reshard(x, (8, 32 @ t.l, 2), "rmem") + 0\n'


def stepped(bounds, axis):
    """A loop that adds a row's sum over ``axis`` of CTAs in each step."""
    return (
        SUMS + f"for i in range({bounds}):\n" + MEET("    ", axis, "    ", 1) + "    e = e + r1\n"
    )


def threads(scope, layout):
    """A reduction over ``layout`` by the threads of ``scope``."""
    return (
        f"with {scope} as u:\n"
        f'    v = tf.reshard(x, {layout}, "rmem")\n'
        '    s = tf.reshard(tf.reduce(v, (1,), True), None, "smem")\n'
        'e = tf.reshard(x, None, "rmem") + tf.reshard(s, None, "rmem")\n'
    )


RIGHT = {
    "what CTAs along the axis wrote": WRITE("", "") + MEET("", "d", "", 1) + READ("", "r1"),
    "behind a loop that runs": WRITE("", "") + SUMS + "for i in range(2):\n"
    + MEET("    ", "d", "    ", 1) + "    e = e + r1\n" + READ("", "e"),
    "met again before the next write": SUMS + "for i in range(3):\n" + WRITE("    ", "    ")
    + MEET("    ", "d", "    ", 1) + READ("    ", "e + r1")
    + MEET("    ", "d", "    ", 2) + "    e = e + r2\n",
    "as many steps, from different starts": stepped("cta.d, 4, 2", "d"),
    "steps that differ between those who do not meet": stepped("cta.d, 3", "c"),
    "whole warps": threads("t[1, :]", "(8, 32 @ u.l, 2)"),
}  # fmt: skip
REFUSED = {
    "what other CTAs wrote":
        (WRITE("", "") + MEET("", "c", "", 1) + READ("", "r1"), "sync-device-memory"),
    "behind a loop that may not run": (
        WRITE("", "") + SUMS + "for j in range(2):\n    for i in range(j):\n"
        + MEET(" " * 8, "d", " " * 8, 1) + "        e = e + r1\n" + READ("", "e"),
        "sync-device-memory"),
    "not met again before the next write": (
        SUMS + "for i in range(3):\n" + WRITE("    ", "    ") + MEET("    ", "d", "    ", 1)
        + READ("    ", "e + r1"), "sync-device-memory"),
    "steps that differ between those who meet": (stepped("cta.d, 3", "d"), "sync-loop-uneven"),
    "steps that differ between threads": (stepped("t.w, 3", "d"), "sync-loop-uneven"),
    "a part of one warp": (threads("t[0, 0:8]", "(8, 8 @ u.l, 8)"), "sync-partial-warps"),
    "parts of two warps": (threads("t[:, 0:16]", "(8, 2 @ u.w, 32)"), "sync-partial-warps"),
}  # fmt: skip


def program(folder, body):
    path = folder / "program.py"
    lines = "\n".join(" " * 16 + line for line in body.rstrip().splitlines())
    path.write_text(HEAD.format(body=lines), encoding="utf-8")
    return load_source(str(path), None, {})


@pytest.mark.parametrize("case", RIGHT)
def test_it_is_right(case, tmp_path):
    right(program(tmp_path, RIGHT[case]), policies=("round-robin", "reverse"))


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case, tmp_path):
    body, code = REFUSED[case]
    found, text = refused(lambda: finalize(program(tmp_path, body)))
    assert found == code and "fix:" in text


OWN = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 2), Topology("thread", 64)))
class Program:
    @func
    def f(x: Tensor[(11, 64), "f32"]):
        out = tf.empty(Tensor[(11, 64), "f32"])
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:
                for i in range({bounds}):
                    v = tf.reshard(x[i:i + 1, :], (1, (32 @ t.l, 2)), "rmem")
                    s = tf.reshard(tf.reduce(v, (1,), True, "max"), (1, 1), "rmem")
                    out = tf.insert_slice(out, v - s, (i, 0))
        return out
"""


@pytest.mark.parametrize("bounds, code", [
    ("cta.c * 2 + t.w, 11, 4", None),
    ("cta.c * 6 + t.w * 3, min(cta.c * 6 + t.w * 3 + 3, 11)", None),
    ("cta.c * 2 + t.w, 11, 3", "device-overlap"),  # row 3 is warp 1's of CTA 1 and warp 0's of 0
    ("t.w, 11", "device-overlap"),
    ("cta.c * 2 + t.w, 10, 4", "device-unwritten"),
])  # fmt: skip
def test_warps_that_meet_in_no_other_walk_rows_of_their_own(tmp_path, bounds, code):
    """3, 3, 3 and 2 rows: what a warp alone sums needs no step of the other."""
    path = tmp_path / "program.py"
    path.write_text(OWN.format(bounds=bounds), encoding="utf-8")
    loaded = load_source(str(path), None, {})
    if code is None:
        right(loaded, policies=("round-robin", "reverse"))
    else:
        found, text = refused(lambda: finalize(loaded))
        assert found == "tir-unverified" and code in text


def along_the_other_axis(stmt):
    """A reduction over CTAs as one over the other axis of their mesh."""
    if isinstance(stmt, Issue) and stmt.attrs.get("scope") == "grid":
        (axis,) = stmt.attrs["over"]
        other = replace(axis, name="c", stride=2)
        return (replace(stmt, attrs={**stmt.attrs, "over": (other,)}),)
    return (stmt,)


def never(stmt):
    """A loop without steps."""
    return (replace(stmt, stop=0),) if isinstance(stmt, For) else (stmt,)


def once():
    """Of two reductions over CTAs the first alone."""
    left = [1]

    def change(stmt):
        if isinstance(stmt, Issue) and stmt.attrs.get("scope") == "grid":
            left[0] -= 1
            return (stmt,) if left[0] >= 0 else ()
        return (stmt,)

    return change


FAULTS = {
    "what CTAs along the axis wrote": (along_the_other_axis, {"race"}),
    "behind a loop that runs": (never, {"race", "uninitialised"}),
    "met again before the next write": (once(), {"race", "overwritten-slot"}),
}


@pytest.mark.parametrize("case", FAULTS)
def test_verifier_and_interpreter_find_what_no_meeting_orders(case, tmp_path):
    change, kinds = FAULTS[case]
    func = kernel(finalize(program(tmp_path, RIGHT[case]))[0])
    assert families(func) == set()
    wrong = replace(func, body=mapped(func.body, change))
    assert "device-overlap" in families(wrong)
    assert seen(wrong) & kinds
