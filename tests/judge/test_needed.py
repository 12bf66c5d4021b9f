"""Every process that loads an author's file can read it, wherever it lies.

A child that needs no right of root's gets none: then it reads what other users may read. The
settings see to it that it keeps that right where a file it needs is closed to others.
"""

import os
import sys

import pytest

from tilefoundry.judge import check
from tilefoundry.judge.jail import settings
from tilefoundry.judge.measure import session
from tilefoundry.judge.measure.request import Request as Measurement
from tilefoundry.judge.request import Request


@pytest.mark.parametrize("role", ["candidate", "reference", "rival"])
@pytest.mark.parametrize("module", [check, session], ids=["check", "measure"])
def test_each_process_is_told_of_the_source(module, role, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(module, "Child", lambda *a, **more: started.append(more))
    source = str(tmp_path / "twin.py")
    if module is check:
        asked = check.Check(Request(source, None, []), tmp_path, {"torch": object()})
    else:
        monkeypatch.setattr(session, "Evictor", lambda cpus: None)
        asked = session.Session(Measurement(source, None), tmp_path, [])
    asked._start(role, *(["evaluator"] if module is check else []))
    assert source in started[0]["needed"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="other users: root's")
def test_a_closed_folder_keeps_the_right_to_read(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "_needed", list)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "twin.py").write_text("")
    parent = tmp_path
    while parent != parent.parent and parent.stat().st_uid == 0 and "pytest" in str(parent):
        parent.chmod(0o755)
        parent = parent.parent

    def asked(number, needed):
        folder = tmp_path / f"judge{number}"
        folder.mkdir()
        own = [folder / "c" / "tmp", folder / "c" / "home"]
        return settings.settings(folder, own, number, 1.0, "cpu", (), needed)

    assert asked(1, [])["reachable"]
    found = asked(2, [str(closed / "twin.py")])
    assert not found["reachable"] and str(closed) in found["unreachable"]
