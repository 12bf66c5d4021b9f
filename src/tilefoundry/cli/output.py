"""Where an answer goes: text or one JSON object, to stdout or whole into a file."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import math
import os
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any, NoReturn

from tilefoundry.diag import ACCEPTED, refuse


def emit(
    record: Mapping[str, object],
    text: str,
    as_json: bool,
    out: str | None = None,
    *,
    exit: int = ACCEPTED,
) -> None:
    """Write one answer: ``text``, or ``record`` as a JSON object if ``as_json``.

    ``out`` absent or ``-`` means stdout; else the file appears whole or not at all.
    The JSON object also says ``ok`` and ``exit``, the code the command will end with
    (which the command itself returns). Refuses with ``output-unwritable``.
    """
    if as_json:
        text = json_text({"ok": exit == ACCEPTED, "exit": exit, **record})
    if not text.endswith("\n"):
        text += "\n"
    if out is None or out == "-":
        say(text)
    else:
        write_whole(out, text)


def write_whole(path: str, text: str) -> None:
    """Replace the file at ``path`` by ``text`` in one step, or refuse and leave it as it was."""
    place = os.path.realpath(path)
    part = f"{place}.{os.getpid()}.part"
    try:
        if os.path.exists(place) and not os.path.isfile(place):
            # A device or pipe is written to, never replaced.
            with open(place, "w", encoding="utf-8") as file:
                file.write(text)
            return
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
        if os.path.exists(place):
            os.chmod(part, os.stat(place).st_mode & 0o7777)
        os.replace(part, place)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        unwritable(path, error)


def unwritable(
    path: object, error: OSError, fix: str = "name another file, or `-` for stdout"
) -> NoReturn:
    """Refuse with ``output-unwritable``."""
    reason = (error.strerror or str(error)).lower()
    refuse("output-unwritable", path=path, reason=reason, fix=fix)


class Closed(io.TextIOBase):
    """The stdout of a process started without one: an answer written there is lost."""

    lost = False

    def write(self, text: str, /) -> int:
        self.lost = self.lost or bool(text)
        if self.lost:
            raise OSError(errno.EBADF, "it is closed")
        return 0


def prepare_streams() -> None:
    """Give a process without stdout or stderr one to write to, and let any text be written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None and name == "stdout":
            sys.stdout = Closed()
        elif stream is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def say(text: str = "") -> None:
    """Write ``text`` to stdout and flush it, or refuse with ``output-unwritable``."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        unwritable("stdout", error, "send stdout to another place")


def discard_stdout() -> None:
    """Send what stdout still holds nowhere: the interpreter flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def json_text(record: Mapping[str, object]) -> str:
    """``record`` as one JSON object, keys sorted; see :func:`plain` for what it may hold."""
    import json

    return json.dumps(plain(record), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """``value`` in JSON's own types.

    Dataclasses become objects; something with a ``record()`` is asked for it; sets are
    sorted; a float that JSON cannot write becomes ``"nan"``, ``"inf"`` or ``"-inf"``.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Set():
            return sorted(plain(item) for item in value)
        case Sequence():
            return [plain(item) for item in value]
        case _ if callable(getattr(value, "record", None)):
            return plain(value.record())
        case _ if dataclasses.is_dataclass(value):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            raise TypeError(f"a report may not hold a {type(value).__name__}")
