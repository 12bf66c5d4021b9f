"""Whole checks: real processes, honest twins that pass and others that must not."""

import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from judge.shared import Bench
from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge.check import Check, check
from tilefoundry.judge.process import Child
from tilefoundry.judge.request import FileInput, Judged, Request
from tilefoundry.judge.run import Runner
from tilefoundry.judge.stated import Predicate

HIR = """
from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

N = DimVar("n", 1, 64)

@module(entry="f", target=CpuTarget("x86_64.generic"))
class Program:
    @func
    def f(x: Tensor[(N, 8), "f32"], y: Tensor[(N, 8), "f32"]):
        return x * y + x

    @func
    def two(x: Tensor[(N, 8), "f32"]):
        return x + x, tf.reduce(x, axes=(1,), keepdim=False, kind="max")

    @func
    def weighted(x: Tensor[(N, 8), "f32"], w: ConstTensor[(8, 4), "f32"]):
        return tf.matmul(x, w)

    @func
    def picked(table: Tensor[(50, 8), "f32"], at: Tensor[(N,), "i64"]):
        return tf.index_select(table, at, 0)
"""
TWIN = """
import sys, os, time, torch
from program import Program
from tilefoundry.runtime import runtime_func, runtime_module

@runtime_module(Program)
class Twin:
    calls = 0
    kept = None

    @runtime_func
    def f(self, x, y):
        {f}

    @runtime_func
    def two(self, x):
        {two}

    @runtime_func
    def weighted(self, x, w):
        {weighted}

    @runtime_func
    def picked(self, table, at):
        {picked}
"""
HONEST = {
    "f": "return x * y + x",
    "two": "return x + x, x.amax(1)",
    "weighted": "return x @ w",
    "picked": "return table[at]",
}
EQUAL = (Predicate("equal"),)


@pytest.fixture(scope="module")
def bench():
    global BENCH
    BENCH = Bench()
    yield BENCH
    BENCH.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("check")


@pytest.fixture
def folder(place, bench, monkeypatch):
    """One folder for all, made anew: what a process imported once it does not import again."""
    monkeypatch.chdir(place)
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (place / "program.py").write_text(HIR)
    torch.manual_seed(0)
    for name in ("x", "y"):
        torch.save(torch.randn(16, 8), place / f"{name}.pt")
    x, y = torch.load("x.pt"), torch.load("y.pt")
    torch.save(x * y + x, place / "expected.pt")
    return place


def twin(**bodies):
    """Write a twin whose functions have these bodies; the honest ones elsewhere."""
    with open("twin.py", "w", encoding="utf-8") as file:
        file.write(TWIN.format(**{**HONEST, **bodies}))


XY = [FileInput(None, "x.pt"), FileInput(None, "y.pt")]


def ask(path="twin.py", selector="Twin.f", out="output", predicates=EQUAL, **more):
    """A check; ``files`` are x and y and ``expected`` their result unless told otherwise;
    ``alone`` in processes of its own."""
    given = {"files": XY, "expected": ["expected.pt"], "seconds": 120.0, **more}
    outs = given.pop("outs", [Judged(out, tuple(predicates))])
    carry_out = check if given.pop("alone", False) else BENCH.check
    return carry_out(Request(str(Path(path).resolve()), selector, outs, **given))


def refused(code, exit=1, **more):
    with pytest.raises(Refusal) as caught:
        ask(**more)
    (diag,) = caught.value.diags
    assert (diag.code, diag.exit) == (code, exit), str(diag.text())
    return diag


def test_an_honest_twin_agrees_with_its_hir(folder):
    twin()
    report = ask(expected=[])
    assert report.agrees and report.candidate == "twin"
    assert report.reference["kind"] == "hir" and report.reference["module"] == "program.py:Program"
    assert set(report.sources) == {"twin.py", "program.py"}
    (row,) = report.rows
    assert (row.finding.differ, row.finding.count, row.dims) == (0, 128, {"n": 16})
    assert "# check output=output fn=equal dims=n:16 value=0 verdict=pass" in report.text()


def test_random_inputs_at_two_extents_and_two_outputs(folder):
    twin()
    report = ask(
        selector="Twin.two", files=None, expected=[], dims={"n": [3, 5]},
        outs=[Judged("output[0]", EQUAL), Judged("output[1]", (Predicate("ulp", {"max": 1}),))],
    )  # fmt: skip
    assert report.agrees and report.seed is not None
    assert [(r.output, r.dims["n"], r.finding.count) for r in report.rows[:4]] == [
        ("output[0]", 3, 24), ("output[1]", 3, 3), ("output[0]", 5, 40), ("output[1]", 5, 5),
    ]  # fmt: skip
    classes = ("ordinary", "touched", "wide", "integers", "cancelling")
    first = [(turn.values, turn.placed) for turn in report.turns if turn.dims["n"] == 3]
    assert first[:2] == [("ordinary", "plain"), ("touched", "same addresses")]
    assert sorted(values for values, _ in first) == sorted(["ordinary", *classes])
    nearby = [turn for turn in report.turns if turn.neighbour]
    assert {turn.dims["n"] for turn in nearby}.isdisjoint({3, 5}) and len(nearby) in (1, 2, 3)
    again = ask(selector="Twin.two", out="*", files=None, expected=[], dims={"n": [3, 5]},
                seed=report.seed)  # fmt: skip
    digests = [[held.tensor.sha256 for held in r.tensors] for r in (report, again)]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(digests[0]) == 2 * len(classes) + len(nearby)


def test_one_wrong_element_disagrees(folder):
    twin(f="out = x * y + x; out[3, 5] += 1; return out")
    report = ask(predicates=(Predicate("max_abs", {"max": 1e-6}), *EQUAL))
    assert not report.agrees
    for row in report.rows:
        found = row.finding
        assert (found.differ, found.index) == (1, (3, 5))
        assert found.got == pytest.approx(found.expected + 1) and row.worst_row[0] == (3,)


def test_the_hir_agrees_with_expected_tensors(folder):
    report = ask("program.py", "Program.f")
    assert report.agrees and report.reference == {"kind": "files", "files": "expected.pt"}
    torch.save(torch.load("expected.pt") + 1e-3, "expected.pt")
    assert not ask("program.py", "Program.f").agrees


def test_an_hir_needs_expected_tensors(folder):
    diag = refused("check-expected-absent", path="program.py", selector="Program.f", expected=[])
    assert "Program.f" in diag.says


@pytest.mark.parametrize(("why", "near_by", "counts"), [
    ("check-timeout", False, False), ("check-timeout", True, True),
    ("check-reference-died", False, True),
])  # fmt: skip
def test_a_class_that_nobody_had_time_for_is_no_pass(why, near_by, counts):
    """Other reasons are told, and the classes that are judged decide."""

    def run(*_):
        refuse(why, None, who="it", seconds="1", doing="running", how="died", function="f")

    judge = SimpleNamespace(reference=SimpleNamespace(run=run), notes=[], slow=False)
    drawn = SimpleNamespace(values="wide", inputs=(), strict=False)
    if counts:
        assert Check._wanted(judge, drawn, {"n": 1}, near_by, None) is None
        assert "left out" in judge.notes[0]
    else:
        with pytest.raises(Refusal, match=why):
            Check._wanted(judge, drawn, {}, near_by, None)


def test_expected_files_must_fit(folder):
    refused("check-expected-count", path="program.py", selector="Program.f",
            expected=["expected.pt", "expected.pt"])  # fmt: skip
    refused("check-expected-random", 2, path="program.py", selector="Program.f", files=None,
            dims={"n": [4]})  # fmt: skip
    torch.save(torch.load("expected.pt").half(), "half.pt")
    refused("check-file-dtype", path="program.py", selector="Program.f", expected=["half.pt"])
    torch.save(torch.load("expected.pt")[:4], "short.pt")
    refused("check-file-shape", path="program.py", selector="Program.f", expected=["short.pt"])
    torch.save(torch.load("expected.pt") / 0 * 0, "nan.pt")
    refused("check-reference-nan", path="program.py", selector="Program.f", expected=["nan.pt"])


def test_inputs_must_be_those_of_the_function(folder):
    def wrong(code, *files):
        return refused(code, path="program.py", selector="Program.f", files=list(files))

    wrong("check-input-count", FileInput(None, "x.pt"))
    wrong("check-input-count", FileInput("x", "x.pt"), FileInput("x", "y.pt"))
    torch.save(torch.randn(16, 7), "narrow.pt")
    wrong("check-file-shape", FileInput(None, "x.pt"), FileInput(None, "narrow.pt"))
    torch.save(torch.randn(16, 8).double(), "double.pt")
    wrong("check-file-dtype", FileInput("y", "double.pt"), FileInput(None, "x.pt"))
    wrong("check-file-unreadable", FileInput(None, "x.pt"), FileInput(None, "none.pt"))


@pytest.mark.parametrize("function, name, fix", [
    ("picked", "tabel", "write table=FILE"),
    ("picked", "zzzzz", "use the names of the function's parameters"),
    ("weighted", "w", "w is a weight: give it by --weights"),
])  # fmt: skip
def test_an_input_of_an_unknown_name(folder, function, name, fix):
    diag = refused("check-input-unknown", path="program.py", selector=f"Program.{function}",
                   files=[FileInput(None, "x.pt"), FileInput(name, "y.pt")], weights="random",
                   expected=["expected.pt"])  # fmt: skip
    assert f"takes no input {name}" in diag.says and diag.fix == fix
    known = {"picked": "one of table at", "weighted": "one of x"}
    assert diag.expected == known[function]


def test_every_output_needs_a_predicate(folder):
    diag = refused("check-output-unjudged", path="program.py", selector="Program.two",
                   out="output[0]", files=XY[:1])  # fmt: skip
    assert "output[1]" in diag.says and diag.found == "predicates for output[0]"


def test_outputs_that_do_not_exist(folder):
    diag = refused("check-output-unknown", 2, path="program.py", selector="Program.two",
                   out="output[2]", files=XY[:1])  # fmt: skip
    assert diag.expected == "one of output[0] output[1]"


def test_extents_are_held_against_the_program(folder):
    hir = {"path": "program.py", "selector": "Program.f"}
    diag = refused("check-dim-unbound", 2, files=None, **hir)
    assert diag.expected == "--dim n=V with 1 to 64"
    assert refused("check-dim-unknown", 2, dims={"m": [4]}, **hir).expected == "one of n"
    refused("check-dim-outside", dims={"n": [65]}, **hir)
    refused("check-file-shape", dims={"n": [15]}, **hir)


def test_no_extent_is_open(folder):
    (folder / "closed.py").write_text(HIR.replace("(N, 8)", "(16, 8)"))
    diag = refused("check-dim-unknown", 2, dims={"n": [4]}, path="closed.py", selector="Program.f")
    assert diag.expected == "no --dim: Program.f has no open extents"
    assert diag.fix == "leave --dim out"


def test_weights_that_nothing_reads_are_noted(folder):
    report = ask("program.py", "Program.f", weights="random")
    note = "note: --weights has no effect: Program.f reads no weights"
    assert report.agrees and note in report.text()
    (folder / "bare.py").write_text(HIR.replace("w: ConstTensor", "w: Tensor"))
    text = ask("bare.py", "Program.f", weights="random").text()
    assert f"# weights origin=random count=0\n#   {note}\n" in text
    assert "# weights" not in ask("bare.py", "Program.f").text()


def test_two_values_that_are_one_step_apart_are_told_apart(folder):
    near = torch.nextafter(torch.load("expected.pt"), torch.tensor(9.0))
    torch.save(near, "near.pt")
    report = ask("program.py", "Program.f", expected=["near.pt"])
    (line,) = [line for line in report.text().splitlines() if "fn=equal" in line]
    words = dict(word.partition("=")[::2] for word in line.split()[2:])
    pair = [np.float32(words[key]) for key in ("got", "expected")]
    assert pair[0] != pair[1] and pair == [
        np.float32(torch.load(name)[0, 0].item()) for name in ("expected.pt", "near.pt")
    ]
    assert (words["differ"], words["outside"], words["of"]) == ("128", "128", "128")


def test_weights_must_be_stated(folder):
    diag = refused("check-weights-unstated", path="program.py", selector="Program.weighted",
                   files=XY[:1])  # fmt: skip
    assert diag.found == "weights w"


def test_checkpoints_are_held_against_the_program(folder):
    def wrong(code, **tensors):
        save_file(tensors, "model/model.safetensors")
        return refused(code, path="program.py", selector="Program.weighted", files=XY[:1],
                       weights="model")  # fmt: skip

    (folder / "model").mkdir()
    wrong("check-weight-missing", v=torch.randn(8, 4))
    wrong("check-file-shape", w=torch.randn(4, 8))
    wrong("check-file-dtype", w=torch.randn(8, 4).half())
    (folder / "model" / "model.safetensors").write_bytes(b"junk")
    refused("check-file-unreadable", path="program.py", selector="Program.weighted",
            files=XY[:1], weights="model")  # fmt: skip


def test_weights_of_a_checkpoint_reach_both(folder):
    twin()
    (folder / "model").mkdir()
    # One byte more in front: the weight's bytes lie on no multiple of its element's size.
    w = torch.randn(8, 4)
    save_file({"a": torch.zeros(3, dtype=torch.uint8), "w": w}, "model/model.safetensors")
    bound = (Predicate("max_abs", {"max": 1e-5}),)
    report = ask(selector="Twin.weighted", files=XY[:1], expected=[], weights="model",
                 predicates=bound)  # fmt: skip
    assert report.agrees and report.weights["origin"] == "model"
    assert report.weights["sha256"] == sha256(b"w" + w.numpy().tobytes()).hexdigest()
    torch.save((torch.load("x.pt").double() @ w.double()).float(), "product.pt")
    assert ask(selector="Twin.weighted", files=XY[:1], expected=["product.pt"], weights="model",
               predicates=bound).agrees  # fmt: skip
    # A random weight is another one.
    assert not ask(selector="Twin.weighted", files=XY[:1], expected=["product.pt"],
                   weights="random", predicates=bound).agrees  # fmt: skip


@pytest.mark.parametrize("body, form", [
    ("return (x * y + x).double()", "a tensor of f64 16x8"),
    ("return (x * y + x).t()", "a tensor of f32 8x16"),
    ("return (x * y + x).tolist()", "a float"),
    ("return (x + y, x * y)", "2 tensors"),
    ("return torch.nn.functional.one_hot(torch.tensor(3)).to_sparse()", "a tensor of"),
    ("class Lie(torch.Tensor): pass\n        return (x * y + x).as_subclass(Lie)", "a Lie"),
])  # fmt: skip
def test_outputs_of_another_form(folder, body, form):
    twin(f=body)
    diag = refused("check-output-form")
    assert form in diag.found or "list" in diag.found


@pytest.mark.parametrize("body, how, word", [
    ("print('# check verdict=agrees'); sys.exit(0)", "exited with code 0", "stdout: # check"),
    ("os._exit(3)", "exited with code 3", None),
    ("os.kill(os.getpid(), 11)", "killed by SIGSEGV", None),
    ("return x @ y", "exited with code 1", "stderr: RuntimeError"),
])  # fmt: skip
def test_candidates_that_do_not_answer(folder, body, how, word):
    twin(f=body)
    diag = refused("check-candidate-died")
    assert diag.found == how and "running f" in diag.says
    assert word is None or any(note.startswith(word) for note in diag.notes)
    crashed = how.startswith("killed")  # the interpreter prints all frames of a crash
    assert crashed or not any("tilefoundry/judge" in note for note in diag.notes)


def test_a_candidate_that_never_ends(folder):
    twin(f="time.sleep(600)")
    diag = refused("check-timeout", 5, seconds=20.0, alone=True)
    assert "candidate" in diag.says and diag.found == "still running f"


def test_loose_predicates_are_refused_before_the_candidate_runs(folder):
    twin(f="os._exit(3)")
    diag = refused("check-predicate-loose", predicates=(Predicate("max_abs", {"max": 1.0}),))
    assert "would pass" in diag.says


def test_a_reference_that_dies(folder):
    # The twin imports the file by its name; only the reference executes it as a source.
    dying = "import os\nif __name__ != 'program': os._exit(9)\nN = DimVar"
    (folder / "program.py").write_text(HIR.replace("N = DimVar", dying))
    twin()
    diag = refused("check-reference-died", 70, expected=[])
    assert diag.found == "exited with code 9"


def test_what_keeps_a_candidate_from_loading_is_told_first(folder):
    """Whatever else is wrong: its HIR is evaluated while it loads."""
    (folder / "twin.py").write_text(
        "import os\nfrom program import Program\nos._exit(4)\n"
        "@runtime_module(Program)\nclass Twin:\n    pass\n"
    )
    for loose in ((Predicate("max_abs", {"max": 1.0}),), EQUAL):
        diag = refused("check-candidate-died", 1, predicates=loose, expected=[], alone=True)
        assert diag.found == "exited with code 4"


def test_a_twin_of_another_program_than_its_text_says(folder):
    (folder / "other.py").write_text(HIR.replace("x * y + x", "x * y - x"))
    text = TWIN.format(**{**HONEST, "f": "return x * y - x"})
    other = "from program import Program\nimport other\nProgram = other.Program\n"
    (folder / "twin.py").write_text(text.replace("from program import Program\n", other))
    report = ask(expected=[])
    assert report.agrees and report.reference["module"] == "other.py:Program"
    assert list(report.sources) == ["twin.py", "other.py"]


def test_a_candidate_that_is_not_kept_apart_stands_still_meanwhile(folder, monkeypatch):
    """The reference is evaluated while the candidate loads only where it cannot be reached."""
    stands, seen = [], []
    monkeypatch.setattr(Child, "apart", False)
    for name, still in (("stop", True), ("go", False)):
        done = getattr(Child, name)
        monkeypatch.setattr(Child, name, lambda child, done=done, still=still: (
            done(child), stands.append(still) if child.role == "candidate" else None))  # fmt: skip
    for name in ("run", "exact"):
        called = getattr(Runner, name)
        monkeypatch.setattr(Runner, name, lambda runner, *a, called=called, **more: (
            seen.append((runner.child.role, stands[-1])), called(runner, *a, **more))[1]
        )  # fmt: skip
    twin()
    assert ask(expected=[]).agrees
    assert {role for role, _ in seen} == {"candidate", "reference"}
    assert all(still == (role == "reference") for role, still in seen), seen


def test_a_candidate_whose_jail_is_less_than_another_is_refused(folder, monkeypatch):
    """The reference began to be evaluated on the word of another process's jail."""
    monkeypatch.setattr(Child, "apart", property(lambda child: child.role != "candidate"))
    twin()
    diag = refused("check-candidate-died", 1, expected=[])
    assert "its jail is less" in diag.fields["how"]


def test_a_loose_predicate_is_refused_before_what_a_call_does_wrong(folder):
    """Calls are made while predicates are tried: what is said first does not depend on who is
    sooner."""
    twin(f="raise RuntimeError('first')")
    loose = (Predicate("max_abs", {"max": 1e6}),)
    refused("check-predicate-loose", predicates=loose, expected=[])
    refused("check-candidate-died", expected=[])


def test_a_program_and_its_twin_in_one_file(folder):
    text = HIR + TWIN.format(**HONEST).replace("from program import Program\n", "")
    (folder / "both.py").write_text(text)
    report = ask("both.py", "Twin.f", expected=[])
    assert report.agrees and list(report.sources) == ["both.py"]


def test_a_device_that_is_not_there(folder):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    diag = refused("check-device", 4, device="cuda", alone=True)
    assert "cuda" in diag.says


def test_numpy_expected(folder):
    np.save("expected.npy", torch.load("expected.pt").numpy())
    assert ask("program.py", "Program.f", expected=["expected.npy"]).agrees


def test_code_of_added_hardware_is_among_the_sources(folder, monkeypatch):
    family = folder / "home" / "targets" / "mine"
    (family / "instr").mkdir(parents=True)
    for file in (family / "schema.py", family / "instr" / "add.py"):
        file.write_text(f"# {file.name}")
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(folder / "home"))
    found = Check(Request("program.py", None, []), folder).sources
    for file in (family / "schema.py", family / "instr" / "add.py"):
        assert found[str(file)] == sha256(file.read_bytes()).hexdigest()
