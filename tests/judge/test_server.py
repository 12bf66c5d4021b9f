"""The fork server: what a refusal need not wait for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tilefoundry.judge.process import Child
from tilefoundry.judge.server import Server


@pytest.fixture
def started(tmp_path):
    made = []

    def start(imported):
        made.append(Server(tmp_path, imported=imported))
        return made[-1]

    yield start
    for server in made:
        server.close()


def child(server, tmp_path):
    return Child("reference", tmp_path, 60, "cpu", {}, server=server)


@pytest.mark.parametrize("asked", [False, True])
def test_an_import_that_nobody_waits_for_is_given_up(started, tmp_path, asked):
    server = started("torch")
    waiting = [child(server, tmp_path)] if asked else []
    for one in waiting:
        one.end()
    server.abandon()
    for one in waiting:
        one.close()
    server.close()
    assert server.process.returncode in (-signal.SIGKILL, 0)  # 0: the import was done already


@pytest.mark.parametrize("imported", ["", "torch"])
def test_nothing_is_given_up_once_the_import_is_done(started, tmp_path, imported):
    server = started(imported)
    one = child(server, tmp_path)
    assert server.pid(one.place)
    server.abandon()
    one.close()
    server.close()
    assert server.process.returncode == 0


FINISHED = """
import sys
from tilefoundry.judge.jail.deferred import Deferred
rest = Deferred()
import torch
known = torch._C._dispatch_get_registrations_for_dispatch_key
before, finders = len(known("Meta")), len(sys.meta_path)
rest.finish()
module = sys.modules["torch._meta_registrations"]
assert len(sys.meta_path) == finders - 1 and module.__spec__.loader is module.__loader__
assert type(module.__loader__).__name__ == "SourceFileLoader"
print(before, *sorted(known("Meta")), sep="\\n")
"""


def test_what_was_deferred_of_torch_is_there_for_who_has_an_author():
    """Registered is what plain torch registers; before, less was."""
    import torch

    ran = subprocess.run([sys.executable, "-c", FINISHED], capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    before, *names = ran.stdout.split()
    plain = set(torch._C._dispatch_get_registrations_for_dispatch_key("Meta"))
    found = {name for name in names if name.startswith("aten::")}
    assert found == {name for name in plain if name.startswith("aten::")}
    assert int(before) < len(found)
