"""The models shipped as programs in the language: their list, and the source of each."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.pages import PACKAGE
from tilefoundry.cli.source import json_option, out_argument
from tilefoundry.diag import refuse

CONFIGURATION = "Configuration: "


@dataclass(frozen=True)
class Model:
    """A shipped model, known by its file alone: nothing of it is executed."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def record(self) -> dict[str, object]:
        """Name, what it is, where its constants were published, the constants, the file."""
        tree = ast.parse(self.text)
        lines = (ast.get_docstring(tree) or "").splitlines()
        source = next(x for x in lines if x.startswith(CONFIGURATION))
        constants = {
            stmt.targets[0].id: stmt.value.value
            for stmt in tree.body
            if isinstance(stmt, ast.Assign)
            and isinstance(stmt.targets[0], ast.Name)
            and isinstance(stmt.value, ast.Constant)
        }
        return {
            "name": self.name,
            "what": lines[0],
            "configuration": source.removeprefix(CONFIGURATION),
            "constants": constants,
            "path": str(self.path),
        }


def models() -> dict[str, Model]:
    """The shipped models by name."""
    files = sorted((PACKAGE / "models").glob("*.py"))
    return {path.stem: Model(path) for path in files if path.stem != "__init__"}


@click.command(
    "models",
    epilog=epilog(
        (
            "tilefoundry models",
            "tilefoundry models qwen3 qwen3.py",
            "tilefoundry models qwen3 --json",
        ),
    ),
)
@click.argument("name", required=False)
@out_argument(program=True)
@json_option
def command(name: str | None, out: str | None, as_json: bool) -> None:
    """The models shipped as programs in the language.

    Without NAME: each model, what it is, where its configuration was published, and the
    constants that --const may give another value. With NAME: its source, on stdout or in
    the file OUT, to be analysed, checked, changed and scheduled.
    """
    known = models()
    if name is None:
        records = [model.record for model in known.values()]
        emit({"models": records}, "\n".join(map(_listed, records)), as_json, out)
        return
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4) or list(known)
        refuse("unknown-model", name=name, known=" ".join(known), near=near[0])
    model = known[name]
    emit({**model.record, "source": model.text}, model.text, as_json, out)


def _listed(record: dict[str, object]) -> str:
    constants = record["constants"]
    assert isinstance(constants, dict)
    words = " ".join(f"{name}={value}" for name, value in constants.items())
    return (
        f"{record['name']}  {record['what']}\n"
        f"  configuration: {record['configuration']}\n"
        f"  constants: {words}"
    )
