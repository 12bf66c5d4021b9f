"""What a diagnostic's code means, with a program that fails and its repair."""

from __future__ import annotations

import difflib

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import json_option, out_argument
from tilefoundry.diag import codes, page, refuse


@click.command(
    "explain",
    epilog=epilog(
        (
            "tilefoundry explain",
            "tilefoundry explain shard-indivisible",
            "tilefoundry explain shard-indivisible --json",
        ),
    ),
)
@click.argument("code", required=False)
@out_argument()
@json_option
def command(code: str | None, out: str | None, as_json: bool) -> None:
    """What a diagnostic's code means.

    With CODE, the word in brackets of a refusal: its exit code, the words of its message
    (names in braces are filled in), why it is refused, and a program that fails beside its
    repair. Without: all codes.
    """
    known = list(codes())
    if code is None:
        width = max(map(len, known))
        text = "\n".join(f"{name:<{width}}  {page(name).says}" for name in known)
        emit({"codes": [{"code": n, "says": page(n).says} for n in known]}, text, as_json, out)
        return
    if code not in known:
        near = difflib.get_close_matches(code, known, 3, 0.4) or ["none"]
        refuse("unknown-code", name=code, near=", ".join(near))
    found = page(code)
    words = {k: getattr(found, k) for k in ("says", "expected", "found", "fix")}
    head = [f"{code} (exit {found.exit})"]
    head += [f"  {key + ':':<10}{value}" for key, value in words.items() if value]
    record = {"code": code, "exit_code": found.exit, **words, "body": found.body}
    emit(record, "\n".join(head) + "\n\n" + found.body, as_json, out)
