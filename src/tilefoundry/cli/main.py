"""The command's entry: finds verbs by file, turns every failure into a coded answer.

A verb is a file of this folder that defines ``command``; the first line of its
docstring is its line in ``tilefoundry --help``. A verb's file is read for that line
and imported only when the verb is used.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import click
from click.exceptions import Exit

import tilefoundry
from tilefoundry.cli.absent import ABSENT, absent
from tilefoundry.cli.help import WIDTH, epilog
from tilefoundry.cli.output import discard_stdout, json_text, prepare_streams, say
from tilefoundry.diag import ACCEPTED, BUG, Diag, Refusal, refuse

VERBS = Path(__file__).parent
DEFINES_COMMAND = re.compile(r"^(def command\(|command\b[^=\n]*=)", re.MULTILINE)
DOCSTRING = re.compile(r'\A"""(.+?)(?:"""|\n)')
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + SIGINT, 128 + SIGPIPE, as shells report them


@cache
def verbs() -> dict[str, str]:
    """Each verb and the line that says what it answers, in alphabetical order."""
    lines = {name: line for name, (line, _) in ABSENT.items() if " " not in name}
    for path in VERBS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if DEFINES_COMMAND.search(text) and (first := DOCSTRING.match(text)):
            lines[path.stem.replace("_", "-")] = first[1]
    return dict(sorted(lines.items()))


class Verbs(click.Group):
    """The group of all verbs, each imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in verbs():
            return None
        stem = cmd_name.replace("-", "_")
        if not (VERBS / f"{stem}.py").is_file():
            return absent(cmd_name)
        return importlib.import_module(f"tilefoundry.cli.{stem}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in verbs():
            import difflib

            near = difflib.get_close_matches(name, verbs(), 1)
            refuse("unknown-verb", verb=name, verbs=" ".join(verbs()), near=(near or ["--help"])[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(verbs().items()))


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": WIDTH},
    epilog=epilog(
        ("tilefoundry tutorial", "tilefoundry analyze chain.py:Placed.chain --memory --roofline"),
        {},
    ),
)
@click.version_option(tilefoundry.__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Write a tensor program and its schedule in one file; ask what it costs,
    what is legal and whether it is right.

    Start with `tilefoundry tutorial`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command on ``argv`` (default: the process's own) and exit."""
    args = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        code = _run(args)
        say()
    except BrokenPipeError:
        discard_stdout()
        code = BROKEN_PIPE
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        code = refusal.exit
    sys.exit(code)


def _run(args: list[str]) -> int:
    """The exit code of running ``args``; the only place that catches everything."""
    as_json = "--json" in args
    try:
        return _answer(args, as_json)
    except (Refusal, BrokenPipeError):
        raise
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        say()  # a stdout that cannot be written is no bug of ours: refused here
        if os.environ.get("TILEFOUNDRY_DEBUG") == "1":
            sys.excepthook(type(error), error, error.__traceback__)
            return BUG
        return _report(Refusal(_bug(error)), as_json)


def _answer(args: list[str], as_json: bool) -> int:
    try:
        # Not `cli.main`: it has its own answers to a closed pipe and an interrupt.
        with cli.make_context("tilefoundry", args) as context:
            answer = cli.invoke(context)
        return answer if isinstance(answer, int) else ACCEPTED
    except Exit as end:
        return end.exit_code
    except Refusal as refusal:
        return _report(refusal, as_json)
    except click.ClickException as error:
        return _report(Refusal(_usage(error)), as_json)


def _report(refusal: Refusal, as_json: bool) -> int:
    if as_json:
        records = [diag.record() for diag in refusal.diags]
        answer = {"ok": False, "exit": refusal.exit, "diagnostics": records}
        say(json_text(answer) + "\n")
    else:
        say()
        print(refusal, file=sys.stderr)
    return refusal.exit


def _usage(error: click.ClickException) -> Diag:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "tilefoundry"
    usage = context.command.get_usage(context).removeprefix("Usage: ") if context else path
    if context and context.parent and isinstance(context.command, click.Group):
        usage = f"{path} and one of: {' '.join(context.command.list_commands(context))}"
    fields = {"message": error.format_message(), "usage": " ".join(usage.split()), "path": path}
    return Diag("usage", None, fields)


def _bug(error: Exception) -> Diag:
    import tempfile
    import traceback

    message = " ".join(str(error).split()) or "no message"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tilefoundry-", suffix=".traceback", delete=False, encoding="utf-8"
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        path = file.name
    except OSError as unwritable:
        path = f"no file ({unwritable}); set TILEFOUNDRY_DEBUG=1 to see it"
    fields = {"kind": type(error).__name__, "message": message, "path": path}
    return Diag("internal-error", None, fields)
