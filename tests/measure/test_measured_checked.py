"""What is measured is what was checked, and a measurement's report can be carried out again."""

import hashlib
import json
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from here import Here

from tilefoundry.cli.measure import command
from tilefoundry.diag import Refusal
from tilefoundry.judge import artefacts, verify
from tilefoundry.judge.measure import player
from tilefoundry.judge.measure.checked import Checked
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.rival import stated
from tilefoundry.judge.measure.verify import hold_measured
from tilefoundry.judge.request import Judged
from tilefoundry.judge.stated import Predicate

SUM = hashlib.sha256(b"kernel").hexdigest()
CHECKED = {
    "kind": "check",
    "verdict": "agrees",
    "function": "Gemm.gemm",
    "candidate": "kernel",
    "sources": {"gemm.py": "1" * 64},
    "artefacts": {"gemm.cubin": SUM},
}


@pytest.fixture
def held(tmp_path):
    def hold(form="kernel", now=None, sources=None, **changes):
        path = tmp_path / "check.json"
        path.write_text(json.dumps({**CHECKED, **changes}))
        files = {"gemm.cubin": SUM} if now is None else now
        given = {"gemm.py": "1" * 64} if sources is None else sources
        found = Checked.read(str(path))
        found.about("Gemm.gemm", form)
        return found.hold(given, files)

    return hold


def test_the_file_that_was_checked_is_measured(held, tmp_path):
    record = held()
    assert record["sha256"] == hashlib.sha256((tmp_path / "check.json").read_bytes()).hexdigest()
    # a twin compiles anew in each process, under another name
    held("twin", {"tmp1.so": "2" * 64}, candidate="twin", artefacts={"tmp0.so": SUM})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"now": {"gemm.cubin": "2" * 64}}, "artefact is another: gemm.cubin"),
        ({"now": {}}, "artefact is another: gemm.cubin"),
        ({"now": {"gemm.cubin": SUM, "more.so": SUM}}, "artefact is another: more.so"),
        ({"sources": {"gemm.py": "2" * 64}}, "source is another: gemm.py"),
        ({"kind": "measure"}, "no report of a check"),
        ({"verdict": "disagrees"}, "its verdict is disagrees"),
        ({"function": "Gemm.other"}, "it is about Gemm.other"),
        ({"candidate": "model"}, "its candidate is a model"),
        ({"artefacts": None}, "no report of a check"),
    ],
)
def test_another_candidate_than_the_checked_one_is_refused(held, changes, says):
    with pytest.raises(Refusal) as caught:
        held(**changes)
    assert caught.value.diags[0].code == "measure-unchecked"
    assert says in str(caught.value)


def test_a_twin_with_another_file_of_the_same_name_is_refused(held):
    with pytest.raises(Refusal, match=r"kernel\.so"):
        held("twin", {"kernel.so": "2" * 64}, candidate="twin", artefacts={"kernel.so": SUM})


def test_a_file_that_was_swapped_after_the_check_is_refused(held, tmp_path):
    """A cubin is mapped by no process: the child names it, the command reads it."""
    cubin = tmp_path / "gemm.cubin"
    cubin.write_bytes(b"kernel")

    def found():
        named = {"files": [str(cubin), "gemm.py", str(tmp_path)]}
        return artefacts.executed(SimpleNamespace(pid=1 << 30, ask=lambda *_: named))

    assert found() == {"gemm.cubin": SUM}
    held(now=found())
    cubin.write_bytes(b"another")
    with pytest.raises(Refusal) as caught:
        held(now=found())
    assert caught.value.diags[0].code == "measure-unchecked"


def test_files_of_one_name_are_told_apart(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.so").write_text(name)
    found = artefacts.hashes(1 << 30, [str(tmp_path / n / "k.so") for n in "ab"])
    assert found == {f"{n}/k.so": hashlib.sha256(n.encode()).hexdigest() for n in "ab"}


def test_a_model_is_not_measured():
    done = CliRunner().invoke(command, ["gemm.py", "--model"])
    assert isinstance(done.exception, Refusal)
    assert [d.code for d in done.exception.diags] == ["measure-model"]


REQUEST = Request(
    "a.py", "A.f", [Judged("output", (Predicate("rel_l2", {"max": 1e-3}),))],
    stated("torch: x * x"), None, "random", "cpu", {"n": [4]}, {"N": 3}, 2, 1, 7, 5, 60.0, "t",
    False, stated("b.py:B.f"), "check.json",
)  # fmt: skip


def test_a_request_is_read_from_its_record():
    record = json.loads(json.dumps(REQUEST.record()))
    assert Request.read(record, 5) == REQUEST
    with pytest.raises((KeyError, TypeError)):
        Request.read({**record, "more": 1}, 5)


HIR = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

@module(entry="f", target=CpuTarget())
class Program:
    @func
    def f(x: Tensor[(8, 16), "f32"]):
        return x * x + x
"""
TWIN = """
from squared import Program
from tilefoundry.runtime import runtime_func, runtime_module

@runtime_module(Program)
class Twin:
    @runtime_func
    def f(self, x):
        return x * x + x
"""


@pytest.fixture
def reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(player, "WARM_SECONDS", 1e-9)
    monkeypatch.setattr("tilefoundry.judge.child.withhold", lambda: None)
    (tmp_path / "squared.py").write_text(textwrap.dedent(HIR))
    (tmp_path / "twin.py").write_text(TWIN)

    def run(request):
        return Here(request, Path(tempfile.mkdtemp(dir=tmp_path))).measure()

    monkeypatch.setattr(verify, "measure", run)

    def made(**changes):
        asked = Request("twin.py", "Twin", against=stated("torch"), processes=1, runs=2, seed=9)
        record = {**run(asked).record(), **changes}
        (tmp_path / "report.json").write_text(json.dumps(record))
        return record

    return made


def test_a_measurement_is_carried_out_again(reported, tmp_path):
    record = reported()
    found = verify.verify("report.json")
    assert {d.what.split()[0] for d in found.differences if d.counts} <= {"ratio"}
    tensor = {**record["tensors"][0], "sha256": "0" * 64}
    (tmp_path / "report.json").write_text(
        json.dumps({**record, "tensors": [tensor, *record["tensors"][1:]], "predicates": "loose"})
    )
    (tmp_path / "twin.py").write_text(TWIN + "\n# another text\n")
    found = verify.verify("report.json")
    what = {d.what for d in found.differences if d.counts and not d.what.startswith("ratio")}
    assert what == {"predicates", "sources twin.py", f"input {tensor['name']} {tensor['origin']}"}
    assert not found.holds


def spread(median, part=0.02):
    return {"median": median, "low": median * (1 - part), "high": median * (1 + part)}


def report(ratio, time, noise=()):
    sides = [
        {"who": who, "data": {"warm": spread(t)}, "clocks": {"warm": {"calls": 10, "room": 1e-5}}}
        for who, t in (("candidate", time), ("rival", 2e-3))
    ]
    return {
        "ratio": {"warm": spread(ratio)} if ratio else {}, "noise": dict.fromkeys(noise, "wide"),
        "sides": sides if ratio else sides[:1], "sources": {}, "weights": {}, "artefacts": {},
        "versions": {}, "floor": {}, "tensors": [],
        **dict.fromkeys(("function", "candidate", "against", "device", "threads", "reference",
                         "predicates"), "same"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("was", "now", "counts"),
    [
        ((2.0, 1e-3), (2.1, 1e-3), []),  # quartiles of 2 % each side, and a tenth
        ((2.0, 1e-3), (1.6, 1e-3), ["ratio warm"]),
        ((2.0, 1e-3), (2.0, 2e-3), []),  # another clock, for both sides: told only
        ((2.0, 1e-3, ["warm"]), (1.0, 1e-3), []),  # it said itself that it could not tell
        ((0, 1e-3), (0, 1.1e-3), []),
        ((0, 1e-3), (0, 1.5e-3), ["time candidate warm"]),
        ((0, 5e-6), (0, 6.5e-6), []),  # the room of the clocks: 1 us a call
    ],
)
def test_times_may_differ_by_noise(was, now, counts):
    seen = []

    def hold(what, before, after, counts=True):
        if before != after and counts:
            seen.append(what)

    hold_measured(hold, report(*was), report(*now))
    assert seen == counts
