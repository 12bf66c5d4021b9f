"""Runs the command without its start: a process that has imported everything forks for each.

What a command answers cannot depend on what was imported before it, since imports do
nothing (``tests/meta``); tests of the start itself run it cold.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path

from process import environment

SECONDS = 120


class Warm:
    """The process that forks, started at the first command."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(self, args: list[str], folder: Path, env: Mapping[str, str], out: Path, err: Path
            ) -> int:  # fmt: skip
        """The exit code of ``tilefoundry ARGS`` in ``folder``, which adds what it says to the
        files ``out`` and ``err``; TimeoutExpired after ``SECONDS``."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, __file__], env=environment(), encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        server = self._server
        assert server.stdin and server.stdout
        files = [str(out), str(err)]
        request = {"args": args, "folder": str(folder), "env": {**env}, "files": files}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], SECONDS)[0]:
            self.close()
            raise subprocess.TimeoutExpired(["tilefoundry", *args], SECONDS)
        return int(server.stdout.readline())

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None


def captured(warm: Warm, args: list[str], folder: Path, env: Mapping[str, str],
             together: bool = False) -> tuple[str, str, int]:  # fmt: skip
    """What a command printed, to stderr apart unless ``together``, and its exit code."""
    with tempfile.TemporaryDirectory() as said:
        out, err = Path(said, "out"), Path(said, "err")
        out.touch()
        err.touch()
        code = warm.run(args, folder, env, out, out if together else err)
        return out.read_text("utf-8"), err.read_text("utf-8"), code


def _serve() -> None:
    import importlib

    import tilefoundry

    package = Path(tilefoundry.__file__).parent
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[-1] not in ("__main__", "__init__") and all(p.isidentifier() for p in parts):
            importlib.import_module(".".join(("tilefoundry", *parts)))
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _command(request)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _command(request: dict) -> None:
    code = 70
    try:
        for number, path in zip((0, 1, 2), ("/dev/null", *request["files"]), strict=True):
            flags = os.O_RDWR | os.O_APPEND if number else os.O_RDONLY
            os.dup2(os.open(path, flags), number)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.path[0] = request["folder"]
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
        from tilefoundry.cli.main import main

        main(request["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            for thread in threading.enumerate():  # as at the end of any process
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


if __name__ == "__main__":
    _serve()
