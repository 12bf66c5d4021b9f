"""Wrong distributions in TIR: a layout permuted, a part shifted, writers left out. Each is refused,
and what an execution shows of it is wrong."""

import sys
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.parse import parse_program
from tilefoundry.tir.printer import print_program
from tilefoundry.verify import verify

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from trapped import seen

PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 2), Topology("thread", 64)),
)
class Program:
    @func
    def f(x: Tensor[(8, 64), "f32"]) -> Tensor[(8, 64), "f32"]:
        out = tf.empty(Tensor[(8, 64), "f32"])
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:
                a = tf.reshard(x, (2 @ cta.c, 2 @ t.w, 2, 32 @ t.l, 2), "rmem")
                b = a * 2.0
                s = tf.reshard(tf.reduce(b, (1,), True), (2 @ cta.c, 2 @ t.w, 2, 1), "rmem")
                out = tf.insert_slice(out, b - s, (0, 0))
        return out
"""
SPLIT = "layout=(2 @ cta.c, 2 @ t.w, 2, 32 @ t.l, 2)"
MUTANTS = {
    "permuted": ("b = T.alloc", SPLIT, "layout=(2 @ cta.c, 2, 2 @ t.w, 32 @ t.l, 2)"),
    "other elements": ("b = T.alloc", SPLIT, "layout=(2 @ cta.c, 2 @ t.w, 2, 2, 32 @ t.l)"),
    "whole": ("b = T.alloc", SPLIT, "layout=(8, 32 @ t.l, 2)"),
    "no terms": ("reduce", '@ {t.l @ P("sum")}', ""),
}  # fmt: skip


def kernel(text, folder):
    path = folder / "tir.py"
    path.write_text(text, encoding="utf-8")
    (func,) = parse_program(text, str(path)).kernels.values()
    return func


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    path = tmp_path_factory.mktemp("holders") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    loaded = load_source(str(path), None, {})
    return print_program(lower(loaded.module, "f"))


def test_as_lowered_it_is_accepted(printed, tmp_path):
    assert verify(kernel(printed, tmp_path)) == ()


@pytest.mark.parametrize("name", ["permuted", "other elements", "whole", "no terms"])
def test_a_wrong_distribution_is_refused(name, printed, tmp_path):
    at, old, new = MUTANTS[name]
    lines = printed.splitlines()
    found = [n for n, line in enumerate(lines) if at in line and old in line] or [
        n for n, line in enumerate(lines) if old in line
    ]
    lines[found[0]] = lines[found[0]].replace(old, new)
    func = kernel("\n".join(lines) + "\n", tmp_path)
    assert "not-held" in {f.code for f in verify(func)}


def test_units_that_do_not_store_their_parts(printed, tmp_path):
    """The scope of the store is one warp of two, or one CTA of two."""
    last = next(n for n, line in enumerate(printed.splitlines()) if ", out)" in line)
    for head in ("with t[0:1, :] as some:", "if 1 - cta.c > 0:"):
        lines = printed.splitlines()
        pad = lines[last][: len(lines[last]) - len(lines[last].lstrip())]
        lines[last : last + 1] = [pad + head, "    " + lines[last]]
        func = kernel("\n".join(lines) + "\n", tmp_path)
        assert "not-held" in {f.code for f in verify(func)}
        assert seen(func)
