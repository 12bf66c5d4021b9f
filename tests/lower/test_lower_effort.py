"""What finalize costs as programs grow: lines that Python executes, counted."""

import sys

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.printer import print_program

PROGRAM = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", 4), Topology("thread", 128)))
class M:
    @func
    def f(x: Tensor[(64, 128), "f32"]) -> Tensor[(64, 128), "f32"]:
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(4, 32), names=("w", "l")) as t:
                v0 = tf.reshard(x, layout=(4 @ cta.c, 4 @ t.w, 4, 32 @ t.l, 4), storage="rmem")
{steps}
                return v{last}
"""

IN_REGISTERS = """\
                v{after} = v{before} * v0 + 1.0
"""
BY_ROLES = """\
                with t[{warp}:{warp} + 1, :] as one:
                    r{n} = tf.reshard(x, layout=(4 @ cta.c, 16, 32 @ one.l, 4), storage="rmem")
                    s{n} = tf.reshard(r{n}, layout=(4 @ cta.c, 16, 128), storage="smem")
                v{after} = v{before} + tf.reshard(
                    s{n}, layout=(4 @ cta.c, 4 @ t.w, 4, 32 @ t.l, 4), storage="rmem")
"""


def executed(path):
    """Lines executed to finalize and print the program of ``path``; each step of a loop or
    of a comprehension is one."""
    count = 0

    def step(frame, event, arg):
        nonlocal count
        count += 1
        return step

    loaded = load_source(str(path), None, {})
    before = sys.gettrace()
    sys.settrace(step)
    try:
        program, findings = finalize(loaded)
        print_program(program)
    finally:
        sys.settrace(before)
    assert program.kernels and not findings
    return count


@pytest.mark.parametrize(
    ("step", "length", "most"),
    [(IN_REGISTERS, 16, 2.01), (BY_ROLES, 4, 2.04)],
    ids=["values in registers", "roles that hand over tiles"],
)
def test_twice_the_statements_cost_twice(tmp_path, step, length, most):
    """Were any part quadratic, the second doubling would add more than twice the first."""
    counts = []
    for steps in (length, length, 2 * length, 4 * length):
        path = tmp_path / "program.py"
        body = "".join(
            step.format(n=n, before=n, after=n + 1, warp=n % 4) for n in range(steps)
        ).rstrip("\n")
        path.write_text(PROGRAM.format(steps=body, last=steps), encoding="utf-8")
        counts.append(executed(path))
    _, short, middle, long = counts  # the first also reads what is then kept
    first, second = middle - short, long - middle
    assert first > 0
    assert second / first < most, counts
