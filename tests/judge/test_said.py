"""What others say or name: one thing to every reader, and no line of ours."""

import json
import os
import time
from pathlib import Path

import pytest

from tilefoundry.diag import Diag, Refusal
from tilefoundry.judge.measure.checked import Checked
from tilefoundry.judge.parsed import parsed
from tilefoundry.judge.report import line
from tilefoundry.judge.request import Request
from tilefoundry.judge.safetensors import entries
from tilefoundry.judge.session import Session
from tilefoundry.judge.verify import differences, verify

FORGED = "x\n# check verdict=agrees\r\x1b[2K\u202e\u2028y"


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "a": 1}}]', "[" * 100_000, "{", "", '{"a": 1}}']
)
def test_what_may_be_read_in_two_ways_is_not_read(text):
    with pytest.raises(ValueError):
        parsed(text)
    assert parsed('{"a": {"b": [1, null]}, "b": 2}') == {"a": {"b": [1, None]}, "b": 2}


REPORTS = {
    "nested": b"[" * 100_000,
    "twice": b'{"kind": "check", "kind": "measure"}',
    "huge": b'{"kind": "check", "seed": 1' + b"0" * 5000 + b"}",
    "not finite": b'{"kind": "check", "seed": NaN, "request": {}}',
    "numbers of another kind": b'{"kind": "check", "seed": 1e400, "request": []}',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
}


@pytest.mark.parametrize("data", REPORTS.values(), ids=REPORTS.keys())
def test_reports_that_are_none(data, tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(data)
    for read, code in ((verify, "verify-report-form"), (_checked, "measure-unchecked")):
        with pytest.raises(Refusal) as caught:
            read(str(path))
        assert caught.value.diags[0].code == code


def _checked(path):
    Checked.read(path).hold({}, {})


def test_a_header_of_tensors_that_is_none(tmp_path):
    path = tmp_path / "a.safetensors"
    for text in (b"[" * 100_000, b'{"x": {}, "x": {}}'):
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        with pytest.raises(Refusal) as caught:
            entries(str(path), "input x")
        assert caught.value.diags[0].code == "check-file-unreadable"


def test_no_name_makes_a_line_of_its_own():
    fields = {"who": "the candidate", "output": FORGED, "found": FORGED, "expected": FORGED}
    text = Diag("check-output-form", None, fields, (FORGED,)).text()
    told = line("check", {"function": FORGED, "b": "\x1b[2K", "c": ["\u202e"], "d": "plain"})
    assert len(told.split("\n")) == 1 and told.endswith("d=plain")
    for said in (text, told):
        assert all(c.isprintable() or c == "\n" for c in said)
        assert not any(x.startswith("#") for x in said.split("\n")[1:])


def test_values_that_are_no_numbers_are_alike(tmp_path):
    nan = json.loads('{"value": NaN}')["value"]
    row = {"output": "o", "dims": {}, "fn": "max_abs", "bounds": {}, "verdict": "fails",
           "value": nan, "differ": 1, "of": 1}  # fmt: skip
    names = ("verdict", "function", "candidate", "target", "device", "predicates", "libraries")
    report = {
        "kind": "check", **dict.fromkeys(names, "x"), "program": {"sha256": "0"},
        **{k: {} for k in ("sources", "reference", "weights", "manners", "versions", "artefacts")},
        "tensors": [], "turns": [], "findings": [row], "deterministic": "yes",
    }  # fmt: skip
    again = json.loads(json.dumps(report))
    assert differences(report, again) == []


@pytest.mark.parametrize("how", ["put back", "replaced", "written", "none"])
def test_a_source_that_is_put_back_shows(how, tmp_path):
    path = tmp_path / "p.py"
    path.write_text("one")
    state = os.stat(path)
    held = Session(Request(str(path), None, ()), tmp_path)
    time.sleep(0.02)  # clocks of files may be as coarse
    other = Path(tmp_path / "other")
    if how == "put back":
        path.write_text("two")
        path.write_text("one")
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    elif how == "replaced":
        other.write_text("one")
        os.replace(other, path)
    elif how == "written":
        path.write_text("two")
    if how == "none":
        return held._hold_sources()
    with pytest.raises(Refusal) as caught:
        held._hold_sources()
    assert caught.value.diags[0].code == "check-source-changed"
