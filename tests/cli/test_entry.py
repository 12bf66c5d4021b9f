"""The entry: what it catches, how it ends, what it loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from process import environment
from tilefoundry.cli import main as entry

HEAVY = ("torch", "numpy", "transformers", "scipy", "sympy", "z3", "islpy")

RUN_AND_LIST = """
import sys
from tilefoundry.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print("\\n\\n" + repr(end.code), *sorted(sys.modules), file=sys.stderr)
"""

FAULTY = """
import sys
from tilefoundry.cli import explain, main
def codes():
    raise {error}
explain.codes = codes
main.main(sys.argv[1:])
"""


def python(program, *args, **env):
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env=environment(**env),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def loaded(*args):
    """The modules that the command has loaded at its end."""
    return set(python(RUN_AND_LIST, *args).stderr.rpartition("\n\n")[2].split()[1:])


def test_internal_error(tmp_path):
    done = python(FAULTY.format(error="RuntimeError('a\\nb')"), "explain", TMPDIR=str(tmp_path))
    assert done.returncode == 70
    assert done.stdout == ""
    (trace,) = tmp_path.glob("tilefoundry-*.traceback")
    words = "refused [internal-error] RuntimeError: a b; the traceback is in"
    assert done.stderr == f"{words} {trace}\n"
    assert "in codes\nRuntimeError: a\nb\n" in trace.read_text()


def test_internal_error_as_json(tmp_path):
    program = FAULTY.format(error="KeyError('k')")
    done = python(program, "explain", "--json", TMPDIR=str(tmp_path))
    assert done.returncode == 70
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["exit"]) == (False, 70)
    assert [d["code"] for d in answer["diagnostics"]] == ["internal-error"]


def test_internal_error_shown_when_debugging():
    done = python(FAULTY.format(error="RuntimeError('x')"), "explain", TILEFOUNDRY_DEBUG="1")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("\nRuntimeError: x\n")
    assert done.returncode == 70


def test_interrupt():
    done = python(FAULTY.format(error="KeyboardInterrupt"), "explain")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("args", [["--help"], ["explain"], ["tutorial", "--json"]])
def test_closed_pipe_is_quiet(args):
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tilefoundry", *args],
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["explain"], ["profile", "--json"]])
def test_full_stdout_is_the_environment(args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilefoundry", *args],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
        )
    assert done.returncode == 4
    assert done.stderr.startswith(
        "refused [output-unwritable] cannot write stdout: no space left on device\n"
    )


def test_closed_stdout_is_the_environment_unless_nothing_is_written_there(tmp_path):
    def run(*args):
        line = [sys.executable, "-m", "tilefoundry", *args]
        return subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *line],
            env=environment(),
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
        )

    for args in (["--help"], ["explain"], ["explain", "shard-indivisible", "--json"]):
        done = run(*args)
        assert done.returncode == 4, args
        assert done.stderr.startswith("refused [output-unwritable] cannot write stdout: ")
    assert run("explain", "shard-indivisible", "page.txt").returncode == 0
    assert (tmp_path / "page.txt").read_text(encoding="utf-8").startswith("shard-indivisible")


def test_help_loads_only_the_frame():
    ours = {name for name in loaded("--help") if name.startswith("tilefoundry")}
    assert ours == {
        "tilefoundry",
        "tilefoundry.cli",
        "tilefoundry.cli.absent",
        "tilefoundry.cli.help",
        "tilefoundry.cli.main",
        "tilefoundry.cli.output",
        "tilefoundry.diag",
    }


@pytest.mark.parametrize("verb", entry.verbs())
def test_help_of_a_verb_loads_nothing_heavy(verb):
    modules = loaded(verb, "--help")
    assert "tilefoundry.cli.main" in modules
    assert not modules & set(HEAVY)


@pytest.mark.parametrize("args", [["tutorial"], ["spec"], ["explain"], ["doctor"]])
def test_static_commands_load_nothing_heavy(args):
    modules = loaded(*args)
    assert "tilefoundry.cli.main" in modules
    assert not modules & set(HEAVY)


@pytest.mark.parametrize("verb", entry.verbs())
def test_help_says_what_it_answers_with_examples_and_exits(verb, command):
    answer = command(verb, "--help")
    assert answer.code == 0
    if verb not in entry.ABSENT or (Path(entry.VERBS) / f"{verb}.py").is_file():
        assert f"tilefoundry {verb}" in answer.stdout.partition("Examples:")[2]
        assert "Exit codes:" in answer.stdout


def test_module_and_script_are_the_same_command(cold):
    script = Path(sys.executable).with_name("tilefoundry")
    if not script.is_file():
        pytest.skip("the package is not installed, only on the path")
    done = subprocess.run(
        [script, "--help"], env=environment(), capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.stdout == cold("--help").stdout
