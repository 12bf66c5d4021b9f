"""The fork server: what a refusal need not wait for."""

from __future__ import annotations

import signal

import pytest

from tilefoundry.judge.process import Child
from tilefoundry.judge.server import Server


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path)
    yield made
    made.close()


def child(server, tmp_path):
    return Child("reference", tmp_path, 60, "cpu", {}, server=server)


def test_an_import_that_nobody_waits_for_is_given_up(server, tmp_path):
    before = child(server, tmp_path)
    server.pid(before.place)
    server.load()
    after = child(server, tmp_path)
    for one in (before, after):
        one.end()
    server.abandon()
    before.close()  # it was forked before: it ends by itself
    after.close()
    server.close()
    assert server.process.returncode in (-signal.SIGKILL, 0)  # 0: the import was done already


def test_nothing_is_given_up_where_nothing_is_imported(server, tmp_path):
    one = child(server, tmp_path)
    server.abandon()
    one.close()
    server.close()
    assert server.process.returncode == 0


def test_nothing_is_given_up_once_the_import_is_done(server, tmp_path):
    server.load()
    one = child(server, tmp_path)
    assert server.pid(one.place)
    server.abandon()
    one.close()
    server.close()
    assert server.process.returncode == 0
