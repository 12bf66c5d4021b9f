"""Reductions of what has one term where it lies are no statement: the value must outlive what
overwrites its place; terms in shared memory are completed by all threads, in each CTA its share."""

import sys
from pathlib import Path

import pytest

from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from trapped import kernel, refused, right

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=({levels}Topology("cta", 4), Topology("thread", 64)))
class Program:
    @func
    def f(x: Tensor[(4, 64), "f32"], y: Tensor[(4, 64), "f32"]):
        out = tf.empty(Tensor[(4, 64), "f32"])
        two = tf.empty(Tensor[(4, 64), "f32"])
{body}
        return out, two
"""
SCOPES = ['with Mesh(("cta",), layout=(2, 2), names=("c", "d")) as cta:',
          'with Mesh(("thread",), layout=(2, 32), names=("w", "l")) as t:']  # fmt: skip
ENDS = "out = tf.insert_slice(out, {}, (n, 0))\ntwo = tf.insert_slice(two, {}, (n, 0))\n".format
SPLIT = 'v = tf.reshard(x[0:2], (2 @ cta.c, 64), "smem")\ns = tf.reduce(v, (0,), True, "{}")\n'
ONE = 'v = tf.reshard(x[n:n + 1], None, "smem")\ns = tf.reduce(v, (0,), True)\n'
NEW = 'tf.reshard(y[n:n + 1], None, "smem")'
HELD = 'tf.reshard({}, None, "rmem")'.format
SHARE = """\
v = tf.reshard(x, (2 @ cta.d, 2 @ t.w, 2 @ cta.c, 32 @ t.l), "rmem")
s = tf.reshard(tf.reduce(v, (0,), True), (1, 2 @ cta.c, 32), "smem")
for i in range(cta.d, 4, 2):
    out = tf.insert_slice(out, s, (i, 0))
    two = tf.insert_slice(two, s, (i, 0))
"""

RIGHT = {
    "overwritten by a copy of the author's": SPLIT.format("sum")
    + "w = tf.schedule((y[0:2], v), op=T.copy())\n" + f"q = {HELD('s')}\n"
    + 'z = tf.reshard(w, (2 @ cta.c, 64), "rmem")\n' + ENDS("q", HELD("tf.reduce(z, (0,), True)")),
    "updated": ONE + f"w = tf.insert_slice(v, {NEW}, (0, 0))\n" + ENDS(HELD("s"), HELD("w")),
    "itself updated": ONE + f"w = tf.insert_slice(s, {NEW}, (0, 0))\n" + ENDS(HELD("v"), HELD("w")),
    "carried": 'v = tf.reshard(x[n:n + 1], None, "smem")\n' + f"a = {NEW}\nfor i in range(3):\n"
    "    s = tf.reduce(v, (0,), True)\n"
    f"    v = tf.reshard({HELD('v')} + 1, None, \"smem\")\n"
    f"    a = tf.reshard({HELD('s')} + {HELD('a')}, None, \"smem\")\n" + ENDS(HELD("a"), HELD("v")),
    "of a parameter": "r = tf.reduce(x[n:n + 1], (0,), True)\n" + ENDS("r", "y[n:n + 1]"),
    "completed into shared memory": SPLIT.format("max")
    + 'q = tf.reshard(s, None, "smem")\n' + ENDS("q", "q"),
    "a share of each CTA": SHARE,
}  # fmt: skip
MESHES = {
    "grid": ("", SCOPES),
    "cluster": ('Topology("cluster", 1), ',
                ['with Mesh(("cluster",), layout=(1,), names=("g",)) as cl:', *SCOPES]),
}  # fmt: skip


def program(folder, body, mesh):
    levels, scopes = MESHES[mesh]
    lines = [" " * 4 * n + line for n, line in enumerate(scopes)]
    lines += [" " * 4 * len(scopes) + x for x in ("n = cta.c * 2 + cta.d", *body.splitlines())]
    path = folder / "program.py"
    body = "\n".join(" " * 8 + line for line in lines)
    path.write_text(HEAD.format(body=body, levels=levels), encoding="utf-8")
    return load_source(str(path), None, {})


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", RIGHT)
def test_it_is_right(case, mesh, tmp_path):
    made = right(program(tmp_path, RIGHT[case], mesh), policies=("round-robin", "reverse"))
    assert emit(made).files


def test_terms_split_over_a_cluster_take_the_share_of_each_cta(tmp_path):
    """(1, 64) terms in f32 over two CTAs: 32 numbers each, 128 bytes."""
    func = kernel(finalize(program(tmp_path, RIGHT["a share of each CTA"], "cluster"))[0])
    assert {b.shape for b in func.buffers if b.storage == "smem" and "shared" in b.name} == {
        (1, 32)
    }


def test_terms_of_device_memory_are_brought_to_registers_first(tmp_path):
    body = SPLIT.format("sum").replace('"smem"', '"gmem"') + ENDS(HELD("s"), HELD("s"))
    code, text = refused(lambda: finalize(program(tmp_path, body, "cluster")))
    assert code == "contract-unmet" and 'tf.reshard(..., storage="rmem")' in text
