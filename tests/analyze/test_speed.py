"""Long and wide programs: no recursion on their depth."""

import sys

import pytest

ALL = ("compute-cost", "memory", "roofline")

CHAIN = """
@func
def f(x: Tensor[(4096, 64), "f16"]):
    with Mesh(("cta",), layout=(8,), names=("t",)) as cta:
        v = tf.reshard(x, (4096 @ cta.t, 64), "rmem")
{body}
        return tf.reshard(v, (4096 @ cta.t, 64), "gmem")
"""

DIAMOND = """
@func
def f(x: Tensor[(64, 64), "f16"]):
{body}
    return x
"""


@pytest.mark.parametrize("name", ["chain", "diamond"])
def test_analysed_without_recursion(program, name):
    if name == "chain":
        made = program(CHAIN.format(body="        v = v + 1.0\n" * 1000), cta=8)
    else:  # 250 times x * x, then x + that: 500 operations, each value used twice
        made = program(DIAMOND.format(body="    x = x + x * x\n" * 250))
    made.report(*ALL)  # parsed once: only the analysis is to do without
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        report = made.report(*ALL)
    finally:
        sys.setrecursionlimit(depth)
    assert report.exit == 0
