"""Reports run again: what holds, what was edited, what the reference was checked against."""

import json
from dataclasses import replace

import pytest

from judge.cheats.twins import EQUAL, Twin, write_program
from judge.shared import Bench
from tilefoundry.diag import Refusal
from tilefoundry.judge import verify
from tilefoundry.judge.request import FileInput, Judged, Request

HONEST = Twin("honest", "return x * y + x", "agrees")


@pytest.fixture(scope="module")
def bench():
    made = Bench()
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("verify")


@pytest.fixture
def folder(place, bench, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr(verify, "check", bench.check)
    write_program(place)
    return place


def report_of(twin, folder, bench, **more):
    """The file of a report, as the command writes it."""
    request = twin.request(folder)
    request = Request.read({**request.record(), **more}, 7)
    record = bench.check(request).record()
    (folder / "report.json").write_text(json.dumps(record))
    return record


def edited(folder, **changes):
    record = json.loads((folder / "report.json").read_text())
    (folder / "edited.json").write_text(json.dumps({**record, **changes}))
    return verify.verify("edited.json")


def hir_report(folder, bench, name="hir.json", expected="expected.pt", **more):
    """The report of the program itself against the tensors of its published model."""
    files = [FileInput(None, "x.pt"), FileInput(None, "y.pt")]
    request = Request("program.py", "Program.f", [Judged("*", EQUAL)], files,
                      expected=[expected], seed=3)  # fmt: skip
    record = {**bench.check(request).record(), **more}
    (folder / name).write_text(json.dumps(record))


def test_a_report_holds_until_something_changes(folder, bench):
    report_of(HONEST, folder, bench)
    found = verify.verify("report.json")
    assert found.holds and not found.differences and "verdict=holds" in found.text()
    path = folder / "honest.py"
    path.write_text(path.read_text() + "\n# another text\n")
    found = verify.verify("report.json")
    assert not found.holds
    assert [d.what for d in found.differences] == [f"sources {path.name}"]


def test_what_is_edited_shows(folder, bench):
    wrong = Twin("wrong", "return x * y", "disagrees")
    record = report_of(wrong, folder, bench)
    assert record["verdict"] == "disagrees"
    found = edited(folder, verdict="agrees")
    assert not found.holds and found.differences[0].what == "verdict"
    assert (found.differences[0].reported, found.differences[0].found) == ("agrees", "disagrees")
    changed = {**record["findings"][0], "value": 0.0, "verdict": "pass"}
    found = edited(folder, findings=[changed, *record["findings"][1:]])
    assert {d.what.split()[-1] for d in found.differences} == {"value", "verdict"}
    found = edited(folder, seed=8)
    assert {d.what.split()[0] for d in found.differences} >= {"tensor"}
    assert not found.holds
    found = edited(folder, versions={**record["versions"], "numpy": "1.0"})
    assert found.holds and [d.counts for d in found.differences] == [False]


def test_a_stated_seed_is_told(folder, bench):
    """Whoever knows the seed can keep its results; a seed that was drawn nobody knows."""
    record = report_of(HONEST, folder, bench)
    assert (record["seed"], record["seed_is"]) == (7, "stated")
    assert any("--seed" in note for note in record["notes"])
    text = verify.verify("report.json").text()
    assert "seed_is=stated" in text and "note: the seed was stated by --seed" in text
    request = HONEST.request(folder)
    drawn = bench.check(replace(request, seed=None)).record()
    assert drawn["seed_is"] == "drawn" and not any("--seed" in n for n in drawn["notes"])
    (folder / "report.json").write_text(json.dumps(drawn))
    found = verify.verify("report.json")
    assert found.holds and "seed_is=drawn" in found.text() and "note:" not in found.text()
    with pytest.raises(Refusal):
        edited(folder, seed_is="secret")


def test_what_is_no_report(folder, bench):
    (folder / "text.json").write_text("agrees")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "other.json").write_text('{"kind": "measure"}')
    (folder / "part.json").write_text('{"kind": "check", "seed": 1, "request": {}}')
    for name in ("none.json", "text.json", "list.json", "other.json", "part.json"):
        with pytest.raises(Refusal) as caught:
            verify.verify(name)
        assert caught.value.diags[0].code == "verify-report-form", name
        assert "AttributeError" not in str(caught.value)


def test_the_report_says_what_the_reference_was_checked_against(folder, bench):
    record = report_of(HONEST, folder, bench)
    assert record["reference"]["against_published_model"] == "unverified"
    hir_report(folder, bench)
    record = report_of(HONEST, folder, bench, verified="hir.json")
    reference = record["reference"]
    assert (reference["against_published_model"], reference["expected"]) == (
        "agrees", "expected.pt",
    )  # fmt: skip
    found = verify.verify("report.json")
    assert found.holds and found.reference is not None and found.reference.holds


def test_a_reference_report_must_be_about_this_reference(folder, bench):
    def refused(**more):
        hir_report(folder, bench, **more)
        with pytest.raises(Refusal) as caught:
            report_of(HONEST, folder, bench, verified="hir.json")
        (diag,) = caught.value.diags
        assert diag.code == "check-reference-report"
        return diag.found

    assert "verdict" in refused(verdict="disagrees")
    assert "text" in refused(sources={"program.py": "0" * 64})
    assert "about" in refused(function="Program.two")
    assert "no check of an HIR" in refused(candidate="twin")
    assert "constants" in refused(request={"consts": {"N": 3}})
    assert "another" in refused(program={"sha256": "0" * 64})
