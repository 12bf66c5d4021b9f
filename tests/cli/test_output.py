"""Answers: JSON's form, and files that appear whole or not at all."""

import json
import os
from dataclasses import dataclass

import pytest

from tilefoundry.cli.output import emit, json_text, write_whole
from tilefoundry.diag import Refusal


@dataclass
class Row:
    name: str
    bytes: int


def test_json_is_one_sorted_object(capsys):
    emit({"b": [1, 2.5], "a": Row("x", 3)}, "unused", True)
    text = capsys.readouterr().out
    assert json.loads(text) == {
        "a": {"bytes": 3, "name": "x"},
        "b": [1, 2.5],
        "exit": 0,
        "ok": True,
    }
    assert [line.strip()[:4] for line in text.splitlines()[1:2]] == ['"a":']


def test_json_of_a_disagreement_says_its_exit(capsys):
    emit({}, "unused", True, exit=1)
    assert json.loads(capsys.readouterr().out) == {"exit": 1, "ok": False}


def test_numbers_that_json_cannot_write():
    text = json_text({"v": [float("nan"), float("inf"), -float("inf")], "s": {3, 1}})
    assert json.loads(text) == {"v": ["nan", "inf", "-inf"], "s": [1, 3]}


def test_a_value_without_a_json_form_is_our_bug():
    with pytest.raises(TypeError):
        json_text({"v": object()})


def test_text_goes_to_stdout_or_a_file(tmp_path, capsys):
    emit({}, "line", False)
    emit({}, "dash", False, "-")
    assert capsys.readouterr().out == "line\ndash\n"
    emit({}, "filed", False, str(tmp_path / "report.txt"))
    assert (tmp_path / "report.txt").read_text() == "filed\n"
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_file_keeps_its_mode_and_links(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("old")
    kept.chmod(0o640)
    (tmp_path / "link").symlink_to(kept)
    write_whole(str(tmp_path / "link"), "new")
    assert kept.read_text() == "new"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link").is_symlink()


def test_a_device_is_written_not_replaced():
    write_whole(os.devnull, "gone")
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize("place", ["", "missing/report.txt", "file/report.txt"])
def test_unwritable_places(tmp_path, place):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(Refusal) as caught:
        write_whole(str(tmp_path / place), "text")
    assert [(d.code, d.exit) for d in caught.value.diags] == [("output-unwritable", 4)]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


REPORTS = (
    ("analyze", "a.py"), ("check", "a.py"), ("measure", "a.py"), ("schedule", "plan", "a.py"),
    ("schedule", "candidates", "a.py"), ("schedule", "finalize", "a.py"), ("explain", "usage"),
)  # fmt: skip


@pytest.mark.parametrize("words", REPORTS, ids=" ".join)
def test_an_answer_does_not_take_the_place_of_a_program(command, tmp_path, words):
    program = tmp_path / "a.py"
    program.write_text("WIDTH = 64\n")
    needed = ("--inputs", "random") if words[0] == "check" else ()
    for place in ("a.py", "./a.py"):
        answer = command(*words, place, *needed)
        assert (answer.code, "[output-program]" in answer.stderr) == (2, True)
        assert program.read_text() == "WIDTH = 64\n"
