"""Every program and command on a shipped page runs and answers as the page says.

- a block with ``file=NAME`` is saved under that name, in a folder of the page's own;
- a ``console`` block's ``$`` lines run there in order, and the lines below each are its
  whole answer, stdout and stderr as they come (see ``page.matches``); ``[exit N]`` ends the
  answer of one that does not exit with 0; what is more than a call of the command runs cold;
- a ``python`` block without a name is a program that runs (and loads, if it has a module),
  unless it says ``python fragment``, which only has to parse;
- on the page of a code, the program under ``Fails`` is refused with that code and no other,
  when it is loaded or evaluated, and the one under ``Repaired`` loads and evaluates.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from page import blocks, commands, matches

import tilefoundry
from process import environment
from tilefoundry import diag
from tilefoundry.ops.base import torch_dtype
from warm import SECONDS, captured

PACKAGE = Path(tilefoundry.__file__).parent
REPOSITORY = Path(__file__).parents[2]
PAGES = [
    *sorted(PACKAGE.glob("tutorial/*.md")),
    *sorted(PACKAGE.glob("spec/*.md")),
    *sorted(REPOSITORY.glob("*.md")),
]
CODES = list(diag.codes())
PLAIN = re.compile(r"tilefoundry [^$`|&;<>()*?\\]*")
"""A call of the command in which the shell does nothing but divide words."""


def load(path):
    """Load the program as the commands do."""
    from tilefoundry.lang.load import load_source

    return load_source(str(path), None, {})


def run(loaded):
    """Evaluate on drawn inputs: some refusals depend on values."""
    from tilefoundry.evaluate import evaluate

    if not loaded.func or loaded.module.funcs[loaded.func].weights:
        return
    drawn = []
    for param in loaded.module.funcs[loaded.func].params:
        type_ = param.tensor
        if not all(isinstance(e, int) for e in type_.shape) or type_.size > 1 << 22:
            return
        dtype = torch_dtype(type_.dtype)
        make = torch.randn if type_.dtype.is_float else torch.zeros  # 0 indexes every axis
        drawn.append(make(type_.shape).to(dtype))
    evaluate(loaded.module, loaded.func, drawn)


def place(path, block):
    return f"{path.name}:{block.line}"


@pytest.fixture
def shell(tmp_path, warm):
    """Runs a line with ``tilefoundry`` and ``python`` being the ones under test."""
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, what in (("tilefoundry", " -m tilefoundry"), ("python", ""), ("python3", "")):
        script = bin / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{what} "$@"\n')
        script.chmod(0o755)
    folder = tmp_path / "page"
    folder.mkdir()
    path = f"{bin}{os.pathsep}{os.environ.get('PATH', '')}"
    env = environment(PATH=path, TILEFOUNDRY_HOME=str(tmp_path / "home"))

    def run(line):
        """What ``line`` prints, and its exit code."""
        if PLAIN.fullmatch(line):
            text, _, code = captured(warm, shlex.split(line)[1:], folder, env, together=True)
            return text, code
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
        )
        return done.stdout, done.returncode

    run.folder = folder
    return run


def execute(path, shell):
    """Save the page's files and run its commands, in the order of the page."""
    for block in blocks(path):
        if block.file:
            target = shell.folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command in commands(block):
                text, code = shell(command.line)
                seen = [line.rstrip() for line in text.splitlines()]
                if not matches(command.answer, seen) or code != command.code:
                    shown = "\n".join([*seen, f"[exit {code}]"])
                    where = f"{path}:{command.number}"
                    pytest.fail(f"{where}: $ {command.line}\nanswers\n{shown}", pytrace=False)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_page(path, shell):
    execute(path, shell)
    for number, block in enumerate(blocks(path)):
        if block.language != "python" or block.file:
            continue
        if "fragment" in block.info:
            ast.parse(textwrap.dedent(block.text))
            continue
        program = shell.folder / f"block{number}.py"
        program.write_text(block.text, encoding="utf-8")
        text, code = shell(f"python {program.name}")
        assert code == 0, f"{place(path, block)}:\n{text}"
        if "@module" in block.text:
            load(program)


@pytest.mark.parametrize("code", CODES)
def test_code(code, shell):
    path = diag.CODES / f"{code}.md"
    found = blocks(path)
    programs = {
        b.section: b
        for b in found
        if b.language == "python" and not b.file and "fragment" not in b.info
    }
    consoles = [b for b in found if b.language == "console"]
    shown = named_tests(path)
    execute(path, shell)

    for test in shown:
        assert exists(test), f"{path.name}: there is no test {test}"
    for block in consoles:
        answers = [line for command in commands(block) for line in command.answer]
        if block.section != "Repaired":
            assert any(f"[{code}]" in line for line in answers), (
                f"{place(path, block)}: no [{code}]"
            )

    if "Fails" in programs:
        assert "Repaired" in programs, f"{path.name}: fails, and is not repaired"
        failing, repaired = shell.folder / "fails.py", shell.folder / "repaired.py"
        failing.write_text(programs["Fails"].text, encoding="utf-8")
        repaired.write_text(programs["Repaired"].text, encoding="utf-8")
        with pytest.raises(diag.Refusal) as caught:
            run(load(failing))
        assert {d.code for d in caught.value.diags} == {code}, str(caught.value)
        assert str(caught.value)
        run(load(repaired))
    assert programs or consoles or shown, f"{path.name}: nothing shows this code"


def named_tests(path):
    """The test ids listed under ``## Shown by``."""
    _, _, below = path.read_text(encoding="utf-8").partition("\n## Shown by\n")
    return [line.strip("- `") for line in below.split("\n## ")[0].splitlines() if "::" in line]


def exists(test):
    file, _, name = test.partition("::")
    path = REPOSITORY / file
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(n, ast.FunctionDef) and n.name == name for n in ast.walk(tree))
