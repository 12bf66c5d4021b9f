"""The fork server: a process of our own code alone, from which the children of a command are
forked, so that what they all import is imported once.

    command ── fork server ── supervisor ── first (pid 1) ── child (pid 2)

It holds nothing that a child must not have: no seed, no answer, no descriptor but its socket to
the command. It has no thread of its own when it forks, no device is initialised in it, and what
it has imported does not change after the first child with an author's code. A
child has another user, another namespace and a filter of system calls (``enter``), and the
memory of this process is closed to all but root: none can reach it, nor through it another.

Children that are asked for ``early`` are forked before the last part of torch is there
(``deferred``): those that no author's code is ever in.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import os
import random
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.judge.jail import enter, system
from tilefoundry.judge.jail.deferred import Deferred
from tilefoundry.judge.jail.enter import ENDING_SECONDS, LINUX
from tilefoundry.judge.wire import receive, send

LIBRARIES = (
    ("libtorch_global_deps.so", os.RTLD_NOW | os.RTLD_GLOBAL),
    ("libtorch_cpu.so", os.RTLD_LAZY),
    ("libtorch_cuda.so", os.RTLD_LAZY),
)
"""Of torch, and how each is opened (``torch/__init__.py``)."""
PATIENCE = 4 * ENDING_SECONDS
"""Seconds in which the supervisors must end once the command has gone."""


def main() -> None:
    """``ARGV: home, the socket to the command, the command's process, its folder, what to import
    beside our own code``."""
    control = socket.socket(fileno=int(sys.argv[2]))
    command, folder = int(sys.argv[3]), sys.argv[4]
    for what in (signal.SIGTERM, signal.SIGINT):
        signal.signal(what, signal.SIG_IGN)
    if LINUX:
        system.prctl(system.SET_DUMPABLE, 0)
    rest = _import(sys.argv[5])
    supervisors: set[int] = set()
    given: list[int] = []
    while (message := receive(control, given)) is not None:
        supervisors -= _ended(supervisors)
        match message.pop("do"):
            case "start":
                if not message.pop("early") and rest is not None:
                    _finish(rest)
                    rest = None
                supervisors.add(pid := _start(message, given, control))
                with contextlib.suppress(OSError):
                    send(control, {"pid": pid})
            case _ if message["pid"] in supervisors:  # what is still ours to kill
                os.kill(message["pid"], signal.SIGKILL)
        for number in given:
            os.close(number)
        given.clear()
    until = time.monotonic() + PATIENCE
    while supervisors and time.monotonic() < until:
        supervisors -= _ended(supervisors)
        time.sleep(0.002)
    if os.getppid() != command:  # it was killed: nobody else removes its folder
        _remove(folder)
    os._exit(0)


def _start(asked: dict[str, Any], given: Sequence[int], control: socket.socket) -> int:
    """Fork a supervisor, which takes what was given with the message."""
    if pid := os.fork():
        return pid
    try:
        _supervise(asked, given, control)
    finally:
        os._exit(70)


def _supervise(asked: dict[str, Any], given: Sequence[int], control: socket.socket) -> NoReturn:
    control.close()
    os.dup2(given[3], 2)  # what goes wrong here is among the child's words
    if LINUX:
        system.prctl(system.SET_DUMPABLE, 1)  # else /proc/self is root's
    os.environ.update(asked.pop("environment"))
    sys.dont_write_bytecode = True
    random.seed()
    enter.supervise(asked, list(given))


def _ours() -> None:
    """Import what of ours every child needs, and that needs neither numpy nor torch."""
    import tilefoundry.dsl
    import tilefoundry.judge.child
    import tilefoundry.judge.signature
    import tilefoundry.lang.decode
    import tilefoundry.lang.load
    import tilefoundry.lang.printer
    import tilefoundry.targets.document  # noqa: F401


def _import(what: str) -> Deferred | None:
    """Import what children share: ``torch``, ``torch without numpy``, or our own code alone; what
    is still to be imported before children with an author's code are forked.
    What fails here fails in the child that needs it, and is told there."""
    rest: Deferred | None = None
    gc.disable()  # nothing of what is imported goes away
    mapping = threading.Thread(target=_map_torch)
    if what:
        mapping.start()
    _ours()
    if what == "torch":
        with contextlib.suppress(Exception):
            import numpy  # noqa: F401
    if what:
        mapping.join()
    with contextlib.suppress(Exception):
        if what == "torch":
            rest = Deferred()
            import torch  # noqa: F401
        elif what:
            from tilefoundry.judge.withheld import absent

            absent()
    gc.freeze()  # else collections in children would copy the memory they share
    gc.enable()
    return rest


def _finish(rest: Deferred) -> None:
    """Import what was deferred; what fails fails in the child that needs it."""
    gc.disable()
    with contextlib.suppress(Exception):
        rest.finish()
    gc.freeze()
    gc.enable()


def _map_torch() -> None:
    """Have the system load torch's libraries, in torch's order: it takes a while, in which it
    does not need the interpreter. What is not there now is torch's to tell."""
    spec = importlib.util.find_spec("torch")
    if not LINUX or spec is None or spec.origin is None:
        return
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name, how in LIBRARIES:
        path = Path(spec.origin).with_name("lib") / name
        if path.exists() and not load(os.fsencode(path), how):
            return


def _ended(supervisors: set[int]) -> set[int]:
    """The supervisors that have ended, taken."""
    found: set[int] = set()
    for pid in supervisors:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                found.add(pid)
    return found


def _remove(folder: str) -> None:
    until = time.monotonic() + ENDING_SECONDS
    while os.path.isdir(folder) and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


__all__ = ["main"]
