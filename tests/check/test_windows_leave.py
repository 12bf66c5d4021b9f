"""Windows that leave their tensor are refused where they are written, by every command."""

from __future__ import annotations

import re

import pytest

from tilefoundry.check.windows import undecided, windows, witness
from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source

PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget


@module(entry="f", target=CpuTarget(), topologies=(Topology("core", 4), Topology("lane", 8)))
class Program:
    @func
    def f(x: Tensor[({rows}, 64), "f32"]):
        out = tf.empty(Tensor[({rows}, 64), "f32"])
        with Mesh(("core",), layout=(2, 2), names=("a", "b")) as core:
            with Mesh(("lane",), layout=(8,), names=("t",)) as lane:
{body}
        return out
"""
READ = 'v = tf.reshard(x[{0}:{0} + {1}, :], ({1}, 64 @ lane.t), "rmem")'
WRITE = "out = tf.insert_slice(out, v + v, ({0}, 0))"


def load(tmp_path, body, rows="100"):
    path = tmp_path / "program.py"
    lines = "\n".join(" " * 16 + line for line in body.splitlines())
    path.write_text(PROGRAM.format(rows=rows, body=lines), encoding="utf-8")
    return load_source(str(path), None, {}).module.funcs["f"]


def body(loops, at, size, write=None):
    lines = [
        *(line.strip() for line in loops),
        READ.format(at, size),
        WRITE.format(at if write is None else write),
    ]
    depth = [*range(len(loops)), len(loops), len(loops)]
    return "\n".join("    " * d + line for d, line in zip(depth, lines, strict=True))


INSIDE = [
    (["for r in range(0, 96, 8):"], "r", 8),
    (["for r in range(0, 100, 4):"], "r", 4),
    (["for r in range(4, 100, 32):"], "r", 32),
    (["for r in range(core.b, 100, 2):"], "r", 1),
    (["for r in range(0, 100, 20):", "for j in range(r, r + 20, 5):"], "j", 5),
    (["for r in range(0, 24):"], "96 - 4 * r", 4),
    # walked forwards and backwards in turn
    (["for r in range(0, 8):", "for s in range(0, 96, 8):"],
     "(s + r % 2 * (88 - 2 * s))", 8),
]  # fmt: skip
BY_EVERY_POINT = [
    # as many rows for each unit as there are: trips differ
    (["for i in range(ceildiv(99 - core.b, 2)):"], "core.b + 2 * i", 2),
    (["for i in range(min(51, 100 - core.b * 51)):"], "core.b * 51 + i", 1),
    (["for i in range(0, 100, 9):"], "i % 30 * 3", 19),
    # who would leave makes no step
    (["for i in range(core.b, 1):"], "core.b * 90", 20),
    (["for i in range(4):", "for j in range(i, 2):"], "i * 50", 50),
]
"""Windows that neither bounds nor first and last values decide."""
OUTSIDE = [
    (["for i in range(ceildiv(101 - core.b, 2)):"], "core.b + 2 * i", 1, "b = 0, i = 50: from 100 "
     "to 100"),
    (["for i in range(0, 100, 9):"], "i % 30 * 3", 20, "i = 27: from 81 to 100"),
    (["for i in range(0, 20):"], "i * 7 % 50 * 2", 3, "i = 7: from 98 to 100"),
    (["for r in range(0, 100, 8):"], "r", 8, "r = 96: from 96 to 103"),
    (["for r in range(core.b, 102, 2):"], "r", 1, "b = 0, r = 100: from 100 to 100"),
    (["for r in range(0, 96, 8):"], "r + 8", 8, "r = 88: from 96 to 103"),
    (["for r in range(0, 96, 8):"], "r - 1", 8, "r = 0: from -1 to 6"),
    (["for r in range(0, 100, 20):", "for j in range(r, r + 20, 5):"], "j + 1", 5,
     "r = 80, j = 95: from 96 to 100"),
    (["for r in range(0, 25):"], "96 - 5 * r", 4, "r = 24: from -24 to -21"),
    (["for r in range(0, 8):", "for s in range(0, 96, 8):"],
     "(s + r % 2 * (96 - 2 * s))", 8, "r = 7, s = 0: from 96 to 103"),
    (["for r in range(0, 3):"], "r % 2 * 99", 4, "r = 1: from 99 to 102"),
    ([], "(core.a * 50 + core.b * 49)", 2, "a = 1, b = 1: from 99 to 100"),
]  # fmt: skip


@pytest.mark.parametrize("case", INSIDE, ids=lambda c: c[1])
def test_windows_that_stay_inside(tmp_path, case):
    func = load(tmp_path, body(*case))
    assert list(undecided(func.body)) == []
    assert all(w.is_inside and witness(w) is None for w in windows(func.body))


@pytest.mark.parametrize("case", BY_EVERY_POINT, ids=lambda c: c[1])
def test_windows_that_all_units_and_steps_keep_inside(tmp_path, case):
    func = load(tmp_path, body(*case))
    assert list(undecided(func.body)) == []
    assert not all(w.is_inside for w in windows(func.body))


def test_windows_of_too_many_steps_are_said_to_be_open(tmp_path, command):
    """i * 7 % 100 has every value below 100, and 1,000,000 steps are too many to look at."""
    load(tmp_path, body(["for i in range(1000000):"], "i * 7 % 100 * i // (i + 1)", 1))
    answer = command("analyze", str(tmp_path / "program.py"))
    assert answer.code == 3 and "verdict=undecided" in answer.stdout.splitlines()[0]


@pytest.mark.parametrize("case", OUTSIDE, ids=lambda c: c[1])
@pytest.mark.parametrize("side", ["read", "write"])
def test_windows_that_leave(tmp_path, case, side):
    loops, at, size, how = case
    text = body(loops, at, size) if side == "read" else body(loops, "0", size, at)
    with pytest.raises(Refusal) as caught:
        load(tmp_path, text)
    (found,) = caught.value.diags
    assert (found.code, found.notes) == ("slice-range", (f"as with {how}",))
    number = next(n for n, line in enumerate(PROGRAM.format(rows=100, body=text).splitlines(), 1)
                  if ("x[" if side == "read" else "insert_slice") in line)  # fmt: skip
    assert found.span.line == number


@pytest.mark.parametrize("case", [c for c in OUTSIDE if len(c[0]) < 2], ids=lambda c: c[1])
def test_every_command_refuses_alike(tmp_path, command, case):
    loops, at, size, _ = case
    path = tmp_path / "program.py"
    lines = "\n".join(" " * 16 + line for line in body(loops, at, size).splitlines())
    path.write_text(PROGRAM.format(rows=100, body=lines), encoding="utf-8")
    heads = set()
    for verb in (["analyze"], ["schedule", "finalize"], ["schedule", "candidates"], ["build"]):
        answer = command(*verb, str(path))
        assert answer.code == 1
        heads.add(re.sub(r".*program.py", "", answer.stderr.splitlines()[0]))
    assert len(heads) == 1


def test_an_open_extent_is_not_decided(tmp_path, command):
    """It leaves for small ones: said, and refused where one is evaluated."""
    text = body(["for r in range(0, 40, 8):"], "r", 8)
    func = load(tmp_path, text, rows='DimVar("n", 1, 100)')
    assert [w.axis for w in undecided(func.body)] == [0, 0]
    answer = command("analyze", str(tmp_path / "program.py"))
    lines = [x for x in answer.stdout.splitlines() if x.startswith("# window ")]
    assert [re.sub("line=.. ", "", x) for x in lines] == [
        "# window axis=0 extent=n start=r size=8 precision=undecided "
        'reason="it is not known whether every unit and step keeps it inside"'
    ] * 2


def test_a_coordinate_of_a_wider_mesh_has_not_all_its_values(tmp_path):
    """In lane[0:2] lane.t is 0 or 1: nothing leaves, and nothing is claimed."""
    text = """with lane[0:2] as half:
    v = x[lane.t * 80:lane.t * 80 + 20, :]
    out = tf.insert_slice(out, v + v, (lane.t * 80, 0))"""
    func = load(tmp_path, text)
    assert [w.axis for w in undecided(func.body)] == [0, 0]
    with pytest.raises(Refusal):
        load(tmp_path, text.replace("lane.t", "half.t").replace("80", "81"))
