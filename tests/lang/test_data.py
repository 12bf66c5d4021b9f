"""Programs as data: what is read back is the same program, and nothing else is made."""

import json
import random
from pathlib import Path

import pytest

from roundtrip import same_module
from tilefoundry.diag import Refusal
from tilefoundry.ir.program import Module
from tilefoundry.lang.decode import NotAProgram, from_data
from tilefoundry.lang.encode import to_data
from tilefoundry.lang.load import load_source
from tilefoundry.lang.printer import print_module

ROOT = Path(__file__).parents[2]
FILES = sorted(
    [*(ROOT / "examples").glob("hello_*cuts.py"), *(ROOT / "examples/gpu").glob("*.py"),
     *(ROOT / "tests/programs").glob("gemm*.py"), ROOT / "examples/hello_cpu.py"]
)  # fmt: skip
PROGRAM = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

N = DimVar("n", 1, 64)


@module(target=CpuTarget("x86_64.generic"))
class Inner:
    weight_names = {"w": "weight"}

    @func
    def g(x: Tensor[(N, 8), "f32"], w: ConstTensor[(8, 4), "f32"]):
        return tf.matmul(x, w)


@module(entry="f", target=CpuTarget("x86_64.generic"))
class Outer:
    inner = ModuleList(Inner, 3)

    @func
    def half(x: Tensor[(N, 8), "f32"]):
        return x * 0.5, tf.reduce(x, axes=(1,), keepdim=False, kind="max")

    @func
    def f(x: Tensor[(N, 8), "f32"]):
        a, b = half(x)
        for k in range(0, 8, 2):
            a = a + x * (k - 1)
        return a, b
"""


def told(module):
    return json.loads(json.dumps(to_data(module)))


@pytest.fixture(scope="module")
def outer(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "program.py"
    path.write_text(PROGRAM)
    return load_source(str(path), "Outer.f", {}).module


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_programs_come_back_as_they_were(path):
    module = load_source(str(path), None, {}).module
    again = from_data(told(module))
    same_module(module, again)
    assert print_module(again) == print_module(module)


def test_modules_calls_loops_and_weights_come_back(outer):
    again = from_data(told(outer))
    same_module(outer, again)
    assert print_module(again) == print_module(outer)
    assert len({id(child) for child in again.children.values()}) == 1  # as often as it was


@pytest.mark.parametrize("rows", [
    None, [], {}, "x", [[]], [["os"]], [["Module"]], [["__import__", "os"]],
    [["DType", "f32"]], [["Expr", [[[{"row": 0}], 1]]]], [["Span", "f", "1", 0, 0, 0]],
    [["Head", "f", ["eval", "1"], [], None]], [["Swizzle", 3, 4, 0.5]],
], ids=repr)  # fmt: skip
def test_what_states_no_program(rows):
    with pytest.raises(NotAProgram):
        from_data(rows)


def test_a_type_that_its_operation_does_not_give(outer):
    rows = told(outer)
    for row in rows:
        if row[0] == "Node" and row[1] == "mul":
            row[1] = "cmp_lt"
    with pytest.raises(NotAProgram, match="cmp_lt gives"):
        from_data(rows)


def test_rows_that_someone_changed_make_a_program_or_nothing(outer):
    """Whatever a row says, what comes of it is a module, a refusal, or no program."""
    good = json.dumps(to_data(outer))
    rng, kinds = random.Random(7), set()
    values = [None, -1, 0, 1, 1 << 40, "f", "f32", [], [1], {"row": 3}, {"row": 10_000}, True, 2.5]
    for _ in range(400):
        rows = json.loads(good)
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.choice(values)
        try:
            kinds.add(type(from_data(rows)))
        except (NotAProgram, Refusal) as error:
            kinds.add(type(error))
    assert kinds == {Module, NotAProgram, Refusal}
