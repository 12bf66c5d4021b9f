"""The command line of check: options bind to what stands before them."""

import importlib.util

import click
import pytest

from tilefoundry.cli import check as verb
from tilefoundry.diag import Refusal
from tilefoundry.judge.stated import PARAMETERS


def judged(line):
    words = line.split()
    return [
        (out.selector, [str(p) for p in out.predicates])
        for out in verb.judged_of(list(zip(words[::2], words[1::2], strict=True)))
    ]


def test_bounds_belong_to_the_predicate_before_them():
    line = (
        "--out output[0] --fn allclose --rtol 1e-3 --atol 1e-5 --fn max_abs --max 2 "
        "--out output[1] --fn cosine --min 0.99 --fn ulp --max 1"
    )
    assert judged(line) == [
        ("output[0]", ["allclose --rtol 0.001 --atol 1e-05", "max_abs --max 2"]),
        ("output[1]", ["cosine --min 0.99", "ulp --max 1"]),
    ]


@pytest.mark.parametrize("line, says", [
    ("--fn equal", "stands before any --out"),
    ("--out output --max 1", "stands before any --fn"),
    ("--out output --fn allclose --rtol 1", "needs --atol; there is no default"),
    ("--out output --fn equal --max 1", "takes no bounds, not --max"),
    ("--out output --fn ulp --max 1 --max 2", "given twice"),
    ("--out output --fn ulp --max one", "not a number"),
    ("--out output --fn ulp --max -1", "no bound"),
    ("--out output --fn ulp --max nan", "no bound"),
    ("", "no --out"),
])  # fmt: skip
def test_what_cannot_be_bound_is_refused(line, says):
    with pytest.raises(Refusal) as caught:
        judged(line)
    (diag,) = caught.value.diags
    assert (diag.code, diag.exit) == ("check-predicate-form", 2) and says in diag.says
    assert all(fn in diag.expected for fn in PARAMETERS)


@pytest.mark.parametrize("line, fix", [
    ("", "write `--out output --fn allclose --atol A --rtol R`"),
    ("--fn equal", "write `--out output --fn equal`"),
    ("--out output --max 1", "write `--fn allclose --atol A --rtol R`"),
    ("--out output --fn rel_l2", "write `--fn rel_l2 --max M`"),
    ("--out output --fn equal --max 1", "write `--fn equal`"),
    ("--out output --fn rel-l2 --max 1", "write `--fn rel_l2 --max M`"),
    ("--out output --fn maxabs", "write `--fn max_abs --max M`"),
    ("--out output --fn zzz", "write `--fn allclose --atol A --rtol R`"),
])  # fmt: skip
def test_the_fix_shows_what_to_write(line, fix):
    with pytest.raises(Refusal) as caught:
        judged(line)
    assert caught.value.diags[0].fix == fix


def test_an_unknown_predicate():
    with pytest.raises(Refusal, match="check-fn-unknown") as caught:
        judged("--out output --fn rel-l2")
    assert caught.value.exit == 2 and caught.value.diags[0].found == "rel-l2"


def test_inputs_and_weights():
    named = verb.files_of("files:a.pt,y=b.pt,c=d/e.npy")
    assert [(f.name, f.path) for f in named] == [(None, "a.pt"), ("y", "b.pt"), ("c", "d/e.npy")]
    assert verb.files_of("random") is None
    assert verb.weights_of("ckpt:a/b") == "a/b" and verb.weights_of("random") == "random"
    for text in ("file:a", "files:", "a.pt"):
        with pytest.raises(click.UsageError):
            verb.files_of(text)
    with pytest.raises(click.UsageError):
        verb.weights_of("ckpt:")


def test_without_torch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="check-torch-absent") as caught:
        verb.require_packages()
    assert caught.value.exit == 4


def test_the_order_of_the_command_line_is_kept(command):
    answer = command("check", "x.py", "--fn=equal", "--inputs", "random", "--out", "output")
    assert answer.code == 2 and "--fn equal stands before any --out" in answer.stderr
    answer = command("check", "x.py", "--inputs", "random", "--out", "output", "--fn")
    assert answer.code == 2
    answer = command("check", "x.py", "--inputs", "random", "--out", "*", "--fn", "equal",
                     "--device", "tpu")  # fmt: skip
    assert answer.code == 2 and "tpu" in answer.stderr


def test_a_file_that_is_not_there(command):
    words = ("check", "none.py", "--inputs", "random", "--out", "output", "--fn", "equal")
    answer = command(*words)
    assert answer.code and "[source-unreadable]" in answer.stderr
    assert answer.stdout == "" and "Traceback" not in answer.stderr
