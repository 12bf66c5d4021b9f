"""Results on their way to the command: what lies in memory, whoever would compute it late."""

import io
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from here import Here
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tilefoundry.diag import Refusal
from tilefoundry.judge.measure import player, session
from tilefoundry.judge.measure.clock import Reading
from tilefoundry.judge.measure.giving import Given
from tilefoundry.judge.measure.raw import Reader
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.rival import stated


class Mine(torch.Tensor):
    pass


BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)
ODD = {
    "a subclass": (torch.ones(2).as_subclass(Mine), "a Mine"),
    "a number": (1.0, "a float"),
    "an array": (np.ones(2), "a ndarray"),
    "a sparse tensor": (torch.eye(3).to_sparse(), "torch.sparse_coo"),
    "of another device": (torch.ones(2, device="meta"), "a tensor on meta"),
    "a type that no program has": (torch.ones(2, dtype=torch.complex64), "torch.complex64"),
    "negated when it is read": (torch._neg_view(torch.ones(2)), "negates"),
    "zeros that nobody wrote": (torch._efficientzerotensor(3), "without memory"),
    "a copy that waits for a write": (torch._lazy_clone(torch.ones(2)), "not made before"),
}


@pytest.mark.parametrize(("value", "says"), ODD.values(), ids=ODD.keys())
def test_what_is_no_tensor_that_is_there(value, says):
    assert says in Reader("cpu").odd(value)


WHERE = {
    "whole": BASE,
    "transposed": BASE.T,
    "every other": BASE[::2, 1::2],
    "one row for all": BASE[:1].expand(5, 6),
    "from within": BASE[2:, 3:],
    "a scalar": BASE[1, 2],
    "nothing": BASE[:0],
    "a parameter": torch.nn.Parameter(BASE),
    "halves": BASE.bfloat16().T,
    "integers": BASE.to(torch.int16)[:, ::3],
    "truths": (BASE > 3).T,
}


@pytest.fixture
def given(tmp_path):
    """The bytes of results through a file, to the command's tensors again."""

    def through(*results):
        clock = lambda pid: Reading(0.0, None)  # noqa: E731
        made = Given(SimpleNamespace(died=_died), 0, clock, tmp_path / "given", 64)
        with made.path.open("r+b") as file:
            answer = Reader("cpu").write_all(file, results)
        return made, answer

    return through


def _died(how):
    raise RuntimeError(how)


@pytest.mark.parametrize("value", WHERE.values(), ids=WHERE.keys())
def test_elements_arrive_wherever_they_lie(value, given):
    made, answer = given([BASE, value], [value])
    for call, at in ((0, 1), (1, 0)):
        found = made.read(answer, call)[at]
        assert found.shape == tuple(value.shape)
        assert np.array_equal(found.values().reshape(found.shape), value.detach().double().numpy())


@pytest.mark.parametrize(
    "place",
    [
        ["f32", [4, 6], [6, 1], 92], ["f32", [4, 6], [6, 1], 100], ["f32", [4, 6], [-6, 1], 96],
        ["f32", [4], [6, 1], 96], ["f33", [4, 6], [6, 1], 96], ["f32", [4, 6], [6, 1], -1],
        ["f32", [1 << 40], [1], 4 << 40], ["f32", ["4"], [1], 16], "f32", None,
    ],
)  # fmt: skip
def test_what_a_process_tells_of_its_results_is_not_believed(place, given):
    made, _ = given([BASE])
    with pytest.raises(RuntimeError, match="no known form"):
        made.read({"places": [[place]]}, 0)


def test_no_mode_is_asked_when_results_are_read():
    asked = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            asked.append(func)
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            asked.append(func)
            return func(*args, **(kwargs or {}))

    reader, file, result = Reader("cpu"), io.BytesIO(), BASE.T
    with Dispatch(), Function():
        asked.clear()
        with reader.no_grad():
            answer = reader.write_all(file, [[result]])
        seen = list(asked)
    assert not seen and answer == {"places": [[["f32", [6, 4], [1, 6], 96]]]}


HIR = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget())
class Program:
    @func
    def f(x: Tensor[(32, 64), "f32"], y: Tensor[(32, 64), "f32"]):
        return x * y + x
"""
TWIN = """
import torch
from multiplied import Program
from tilefoundry.runtime import runtime_func, runtime_module

{head}

@runtime_module(Program)
class Twin:
    def __init__(self):
        self._kept = []

    @runtime_func({mark})
    def f(self, x, y):
{body}
"""
LATER = """
LATE, ON = {}, [True]

def due():
    jobs = list(LATE.values()) if ON else []
    LATE.clear()
    for x, y, out in jobs:
        torch.add(torch.mul(x, y), x, out=out)

def later(x, y):
    out = torch.empty_like(x)
    LATE[len(LATE)] = x.clone(), y.clone(), out
    return out
"""
LAZY = {
    "a mode of dispatch": """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        due()
        return func(*args, **(kwargs or {}))
""",
    "a mode of functions": """
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            due()
        return func(*args, **(kwargs or {}))
""",
    "patched methods": """
class Mode:
    def __enter__(self):
        for name in ("cpu", "detach", "contiguous", "data_ptr", "numel", "numpy", "storage_offset"):
            def patched(self, *args, _old=getattr(torch.Tensor, name), **more):
                due()
                return _old(self, *args, **more)
            patched.undo = getattr(torch.Tensor, name)
            setattr(torch.Tensor, name, patched)
    def __exit__(self, *_):
        for name in dir(torch.Tensor):
            if hasattr(getattr(torch.Tensor, name), "undo"):
                setattr(torch.Tensor, name, getattr(torch.Tensor, name).undo)
""",
}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(player, "WARM_SECONDS", 1e-9)
    monkeypatch.setattr("tilefoundry.judge.child.withhold", lambda: None)
    monkeypatch.setattr(session, "JUDGED_SECONDS", 1e9)  # every round
    (tmp_path / "multiplied.py").write_text(HIR)

    def run(body, head="", mark="", **more):
        text = TWIN.replace("{head}", head).replace("{mark}", mark)
        (tmp_path / "twin.py").write_text(text.replace("{body}", textwrap.indent(body, " " * 8)))
        request = Request("twin.py", "Twin.f", processes=1, runs=4, seed=5, **more)
        return Here(request, tmp_path).measure()

    return run


@pytest.mark.parametrize("how", LAZY)
def test_what_is_computed_when_somebody_looks_is_wrong(how, measured):
    """Right wherever torch is asked for the result, and in memory never."""
    modes = []
    torch.modes = modes
    head = f"{LATER}\n{LAZY[how]}\nmode = Mode()\nmode.__enter__()\ntorch.modes.append(mode)\n"
    try:
        with pytest.raises(Refusal) as caught:
            measured("return later(x, y)", head)
    finally:
        for mode in modes:
            mode.__exit__(None, None, None)
        del torch.modes
    assert caught.value.diags[0].code == "measure-wrong"
    assert "in a timed call" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "mark"),
    [
        ("y.mul_(x).add_(x)\nreturn y", "in_place={'y': 0}"),
        ("torch.mul(x, y, out=x.clone())\nreturn y.mul_(x).add_(x)", "in_place={'y': 0}"),
        ("if not self._kept:\n    self._kept.append(torch.empty_like(x))\n"
         "return torch.add(torch.mul(x, y), x, out=self._kept[0])", "static=True"),
    ],
    ids=["in place", "in place with a workspace", "static"],
)  # fmt: skip
@pytest.mark.parametrize("against", [None, "torch", "twin.py:Twin.f"])
def test_results_in_memory_that_was_declared(body, mark, against, measured):
    report = measured(body, mark=mark, against=against and stated(against))
    assert {value for value, _ in report.worst.values()} == {0}
    assert len(report.sides) == (1 if against is None else 2)
    assert "seed_is=stated" in report.text() and report.record()["seed_is"] == "stated"


def test_results_in_place_of_an_input_must_be_declared(measured):
    with pytest.raises(Refusal) as caught:
        measured("return y.mul_(x).add_(x)")
    assert caught.value.diags[0].code in ("check-output-alias", "check-inputs-mutated")
