"""The fork server: what a refusal need not wait for."""

from __future__ import annotations

import signal

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
