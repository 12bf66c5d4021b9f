"""The command's whole answers, and what it may load."""

import json
import subprocess
import sys

import pytest
from plan_programs import small, tutorial

from process import environment


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "persistent.py").write_text(tutorial("persistent.py"), encoding="utf-8")
    wide = small(tile="128, 128, 64").replace("256, 256, 256", "4096, 4096, 4096")
    (tmp_path / "small.py").write_text(wide, encoding="utf-8")
    source = small(tile="50, 70, 32").replace("256, 256, 256", "200, 280, 256")
    (tmp_path / "odd.py").write_text(source, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("persistent.txt", ("persistent.py", "--best", "2")),
        ("small.txt", ("small.py", "--best", "2")),
        ("odd.txt", ("odd.py",)),
        ("applied.txt", ("persistent.py", "--apply", "7")),
    ],
)
def test_answers(name, args, folder, command, golden):
    answer = command("schedule", "plan", *args)
    stderr = f"[stderr]\n{answer.stderr}" if answer.stderr else ""
    golden(name, f"{answer.stdout}{stderr}[exit {answer.code}]\n")


def test_json_carries_the_same(folder, command):
    answer = json.loads(command("schedule", "plan", "persistent.py", "--json").stdout)
    text = command("schedule", "plan", "persistent.py").stdout
    assert answer["ok"] and answer["exit"] == 0
    (loop,) = answer["loops"]
    assert f"plans={loop['plans']} variants={loop['variants']} shown=6" in text
    assert len(loop["shown"]) == 6 and "all" not in loop
    for plan in loop["shown"]:
        assert f"\nplan {plan['number']} " in text
        for edit in plan["edits"]:
            assert "\n".join(edit["lines"]) in text
    every = json.loads(command("schedule", "plan", "persistent.py", "--json", "--all").stdout)
    assert len(every["loops"][0]["all"]) == loop["plans"]


def test_constants_are_the_command_s(folder, command):
    """At BK=128 a stage has 96 KiB: two of them fit, none beside a staged tile of 64 KiB but
    one."""
    done = command("schedule", "plan", "persistent.py", "--const", "BK=128", "--all", "--json")
    plans = json.loads(done.stdout)["loops"][0]["all"]
    apart = [p for p in plans if p["roles"] == "producer apart"]
    assert {p["slots"] for p in apart if p["store"] == "loader"} == {1}
    assert {p["slots"] for p in apart if p["store"] == "consumers, registers"} == {1, 2}


def test_it_loads_neither_tensors_nor_compilers(folder):
    code = (
        "import sys\nfrom tilefoundry.cli.main import main\n"
        "try: main(['schedule', 'plan', 'persistent.py', 'plans.txt'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'cuda') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True,
        encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
    assert (folder / "plans.txt").read_text(encoding="utf-8").startswith("# plan loops=1 ")
