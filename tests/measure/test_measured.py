"""Whole measurements: what is wrong is refused, what is right is reported. No figure is judged."""

import json
from types import SimpleNamespace

import pytest
from here import Here

from tilefoundry.diag import Refusal
from tilefoundry.judge.measure import player, session
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.rival import STATEMENTS, stated, unknown_names
from tilefoundry.judge.request import Judged
from tilefoundry.judge.stated import Predicate

HIR = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

N = DimVar("n", 1, 64)

@module(entry="chain", target=CpuTarget())
class Program:
    @func
    def chain(x: Tensor[(N, 8), "f32"], y: Tensor[(N, 8), "f32"]):
        return (x * y + x) * y

    @func
    def product(a: Tensor[(N, 8), "f32"], b: Tensor[(6, 8), "f32"]):
        return tf.matmul(a, b, b_layout="NK")

    @func
    def steps(x: Tensor[(64,), "f32"]):
        out = x
        for i in range(3):
            out = out * x
        return out

    @func
    def weighted(x: Tensor[(N, 8), "f32"], w: ConstTensor[(8,), "f32"]):
        return x * w
"""
TWIN = """
import torch
from program import Program
from tilefoundry.runtime import runtime_func, runtime_module

@runtime_module(Program)
class Twin:
    def __init__(self):
        self._calls, self._kept = 0, None

    @runtime_func
    def chain(self, x, y):
        self._calls += 1
        {chain}

    @runtime_func
    def product(self, a, b):
        return a @ b.T

    @runtime_func
    def steps(self, x):
        return ((x * x) * x) * x

    @runtime_func
    def weighted(self, x):
        return x * self.weights["w"]
"""
RIGHT = "return (x * y + x) * y"
CLOSE = [Judged("output", (Predicate("rel_l2", {"max": 1e-6}),))]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(player, "WARM_SECONDS", 1e-9)
    # both sides and the evaluator are one process here
    monkeypatch.setattr("tilefoundry.judge.child.withhold", lambda: None)
    (tmp_path / "program.py").write_text(HIR)

    def run(func="chain", against=None, chain=RIGHT, **more):
        (tmp_path / "twin.py").write_text(TWIN.replace("{chain}", chain))
        asked = {"dims": {"n": [5]}, "processes": 2, "runs": 3, "seed": 3, **more}
        rival = against and stated(against)
        request = Request("twin.py", f"Twin.{func}", against=rival, **asked)
        measuring = Here(request, tmp_path)
        run.children = measuring.children
        return measuring.measure()

    return run


def code(caught):
    return [d.code for d in caught.value.diags]


def test_a_report_holds_every_round(measured):
    report = measured(against="torch")
    ours, theirs = report.sides
    assert (ours.who, theirs.who) == ("candidate", "rival")
    for side in report.sides:
        assert {data: len(times) for data, times in side.figures.items()} == {"cold": 6, "warm": 6}
        assert len(side.processes["warm"]) == 2
    assert report.ratio["warm"].count == 6
    assert report.against == f"torch: {STATEMENTS}"
    assert report.floors["cold"].lacks  # a generic CPU states no figures
    record = json.loads(json.dumps(report.record()))
    assert record["threads"] == 1 and len(record["sides"]) == 2
    lines = report.text().splitlines()
    assert [x.split()[1] for x in lines].count("time") == 4
    assert all(x.startswith("# ") for x in lines)
    assert {(v["who"], v["predicate"], v["value"]) for v in record["verified"]} == {
        ("candidate", "equal", 0), ("rival", "equal", 0),
    }  # fmt: skip


def test_a_candidate_alone_needs_no_rival(measured):
    report = measured(func="weighted", weights="random")
    assert len(report.sides) == 1 and not report.ratio and report.against == ""
    assert report.weights["origin"] == "random"


@pytest.mark.parametrize(
    ("func", "against", "called"),
    [
        ("product", "torch", f"torch: {STATEMENTS}"),
        ("product", "numpy", f"numpy: {STATEMENTS}"),
        ("chain", "numpy", f"numpy: {STATEMENTS}"),
        ("chain", "torch: torch.mul(x * y + x, y)", "torch: torch.mul(x * y + x, y)"),
        ("steps", "numpy: x * x * x * x", "numpy: x * x * x * x"),
        ("weighted", "torch: x * w", "torch: x * w"),
        ("chain", "twin.py:Twin.chain", "twin.py:Twin.chain"),
    ],
)
def test_rivals(measured, func, against, called):
    report = measured(func, against, outs=CLOSE, processes=1, runs=1,
                      weights="random" if func == "weighted" else None,
                      dims={} if func == "steps" else {"n": [5]})  # fmt: skip
    assert report.against == called


@pytest.mark.parametrize(
    ("reference", "record"),
    [
        ("torch: (x * y + x) * y", {"kind": "torch", "says": "(x * y + x) * y"}),
        ("numpy", {"kind": "numpy", "says": STATEMENTS}),
        ("twin.py:Twin.chain", {"kind": "source", "source": "twin.py:Twin.chain"}),
    ],
)
def test_a_stated_reference(measured, reference, record):
    report = measured(against="torch", reference=stated(reference), processes=1, runs=1)
    assert report.reference == record


def test_results_are_held_to_the_stated_reference(measured):
    with pytest.raises(Refusal) as caught:
        measured(reference=stated("torch: x * y"))
    assert code(caught) == ["measure-wrong"]


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        ("return (x * y + x) * y * 1.5", "before it is timed"),
        # right where it is checked, then what it kept
        ("self._kept = (x * y + x) * y if self._calls < 4 else self._kept\n"
         "        return self._kept.clone()", "in a timed call"),
        # right in a few calls
        ("if self._calls < 4 or self._calls % 64 == 0:\n"
         "            self._kept = (x * y + x) * y\n"
         "        return self._kept.clone()", "in a timed call"),
    ],
)  # fmt: skip
def test_a_wrong_candidate_is_refused(measured, chain, says):
    with pytest.raises(Refusal) as caught:
        measured(chain=chain, dims={"n": [64]})
    assert code(caught) == ["measure-wrong"]
    assert f"the candidate is wrong {says}" in str(caught.value)


LARGE = """
import torch
from tilefoundry.dsl import *
from tilefoundry.runtime import runtime_func, runtime_module
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget())
class Program:
    @func
    def f(a: Tensor[(256, 512), "f32"], b: Tensor[(512, 256), "f32"]):
        return tf.matmul(a, b)

@runtime_module(Program)
class Twin:
    def __init__(self):
        self._calls, self._kept = 0, {}

    @runtime_func
    def f(self, a, b):
        self._calls += 1
        {body}
"""
KEPT = """
        if self._calls < 4 or self._calls % 8 == 0:
            self._kept["c"] = a @ b
        return self._kept["c"].clone()
"""
UPDATED = """
        at = a.data_ptr()
        if self._calls > 3 and at in self._kept:
            was, c = self._kept[at]
            rows = (a != was).any(1).nonzero()[:4, 0]
            c[rows] = a[rows] @ b
        else:
            c = a @ b
        self._kept[at] = a.clone(), c
        return c.clone()
"""


@pytest.mark.parametrize("body", [KEPT, UPDATED], ids=["kept", "brought up to date"])
def test_a_result_of_calls_before_is_not_nearly_right(body, measured, tmp_path):
    """One element of a hundred thousand: within any bound that a product in f32 is given."""
    (tmp_path / "large.py").write_text(LARGE.replace("{body}", body))
    close = [Judged("*", (Predicate("rel_l2", {"max": 8e-3}),))]
    with pytest.raises(Refusal) as caught:
        request = Request("large.py", "Twin.f", close, processes=1, runs=4)
        Here(request, tmp_path).measure()
    assert code(caught) == ["measure-wrong"] and "in a timed call" in str(caught.value)


def test_a_wrong_rival_is_refused(measured):
    with pytest.raises(Refusal) as caught:
        measured(against="torch: x * y")
    assert code(caught) == ["measure-rival-wrong"]


def test_a_result_that_is_no_tensor_is_refused(measured):
    lazy = "return (x * y + x) * y if self._calls < 3 else [(x * y + x) * y, 1][:1][0].numpy()"
    with pytest.raises(Refusal) as caught:
        measured(chain=lazy)
    assert code(caught) == ["check-output-form"]


def test_a_rival_that_raises(measured):
    with pytest.raises(AttributeError):
        measured(against="torch: x * torch.absent")


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("x * absent", ["absent"]),
        ("np.add(x, y)", ["np"]),  # numpy's names are not those of torch
        ("F.gelu(x) + max(1, 2)", []),
        ("[i * x for i in (1, 2)][0] + (lambda z: z)(y)", []),
        ("gate_up * x", []),
    ],
)
def test_names_that_an_expression_cannot_mean(expression, unknown):
    assert unknown_names(stated(f"torch: {expression}"), ["x", "y", "gate.up"]) == unknown


def test_a_wrong_name_is_refused_before_anything_runs(measured):
    with pytest.raises(Refusal) as caught:
        measured(against="torch: x * absent")
    assert code(caught) == ["measure-rival-form"] and "absent is no parameter" in str(caught.value)


def test_a_program_with_loops_needs_an_expression(measured):
    with pytest.raises(Refusal) as caught:
        measured("steps", "torch", dims={})
    assert code(caught) == ["measure-rival-unknown"]
    assert '--against "torch: EXPRESSION' in str(caught.value)


def test_one_shape_at_a_time(measured):
    with pytest.raises(Refusal) as caught:
        measured(dims={"n": [5, 6]})
    assert code(caught) == ["measure-extents"]


def test_no_more_threads_than_processors():
    with pytest.raises(Refusal) as caught:
        session.processors(100_000)
    assert code(caught) == ["measure-threads"]
    assert len(session.processors(1)) <= 1


@pytest.mark.parametrize(
    ("text", "library", "expression"),
    [
        ("torch", "torch", ""),
        ("numpy: np.exp(x)", "numpy", "np.exp(x)"),
        ("b.py:B.f", "", "b.py:B.f"),
    ],
)
def test_stated_rivals(text, library, expression):
    assert (stated(text).library, stated(text).text) == (library, expression)


@pytest.mark.parametrize("text", ["torch:", "torch: x +", "numpy: import os"])
def test_a_rival_that_is_no_expression(text):
    with pytest.raises(Refusal) as caught:
        stated(text)
    assert code(caught) == ["measure-rival-form"]


@pytest.mark.parametrize(("text", "near"), [("pytroch", "did you mean torch"), ("mkl", "FILE.py")])
def test_a_rival_that_is_neither_a_library_nor_a_file(text, near):
    with pytest.raises(Refusal, match=near) as caught:
        stated(text)
    assert code(caught) == ["measure-rival-form"]


def test_another_kernel_in_a_later_process_is_refused(tmp_path, monkeypatch):
    measuring = Here(Request(str(tmp_path / "p.py"), None), tmp_path)
    seen = iter([{"a.so": "1"}, {"a.so": "1"}, {"a.so": "2"}, {"a.so": "2"}])
    monkeypatch.setattr(session.artefacts, "executed", lambda child, sources: next(seen))
    candidate = SimpleNamespace(child=None)
    measuring._hold_artefacts(candidate, True)
    measuring._hold_artefacts(candidate, True)
    assert measuring.artefacts == {"a.so": "1"}
    with pytest.raises(Refusal) as caught:
        measuring._hold_artefacts(candidate, True)
    assert code(caught) == ["measure-artefact"] and "a.so" in str(caught.value)
    measuring._hold_artefacts(candidate, False)  # a twin compiles in each process


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_a_rival_calls_the_librarys_own_elementwise_functions(tmp_path, dtype, monkeypatch):
    """No detour by another type: one function of torch for each statement, the same bits."""
    import torch

    from tilefoundry.evaluate import evaluate
    from tilefoundry.judge.measure.rival import subject
    from tilefoundry.lang.load import load_source

    text = HIR.replace("(x * y + x) * y", "(x * y + x) / y - x").replace('"f32"', f'"{dtype}"')
    (tmp_path / "p.py").write_text(text)
    module = load_source(str(tmp_path / "p.py"), "Program.chain", {}).module
    called = subject(module, module.funcs["chain"], "torch", STATEMENTS, {"n": 5})
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    x, y = (torch.randn(5, 8).to(kind) for _ in range(2))
    want = evaluate(module, "chain", [x, y], {}, "cpu")
    monkeypatch.setattr(torch.Tensor, "float", lambda self: pytest.fail("by way of f32"))
    got = called(x, y)
    assert torch.equal(got, want[0] if isinstance(want, tuple | list) else want)
