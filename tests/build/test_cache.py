"""The cache of compiled programs: once each, whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from test_cpu_programs import FAST, loaded

from process import environment
from tilefoundry.build import build, cache
from tilefoundry.diag import Refusal


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path))
    return tmp_path


def made(folder):
    (folder / "x.so").write_text("library")


def test_the_second_is_a_hit(home):
    first = build(loaded("total", {}), FAST)
    second = build(loaded("total", {}), FAST)
    assert (first.hit, second.hit) == (False, True)
    assert first.library == second.library
    assert str(first.library).startswith(str(home / "cache"))
    assert not build(loaded("total", {"N": 11}), FAST).hit


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.delenv("TILEFOUNDRY_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "tilefoundry"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert str(cache.root()) == "/h/.cache/tilefoundry"


def test_parts_of_a_key_do_not_run_together():
    assert cache.key_of(["a", "bc"]) != cache.key_of(["ab", "c"])


def _slow(home, counts):
    os.environ["TILEFOUNDRY_HOME"] = home

    def make(folder):
        with counts.get_lock():
            counts.value += 1
        time.sleep(0.2)
        made(folder)

    assert cache.entry("key", "x.so", make).library.read_text() == "library"


def test_many_processes_make_one(home):
    context = multiprocessing.get_context("fork")
    counts = context.Value("i", 0)
    jobs = [context.Process(target=_slow, args=(str(home), counts)) for _ in range(6)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 6
    assert counts.value == 1


def test_a_killed_process_leaves_nothing_that_hinders(home):
    script = textwrap.dedent("""
        import time
        from tilefoundry.build import cache

        def make(folder):
            (folder / "x.so").write_text("half")
            print("begun", flush=True)
            time.sleep(60)

        cache.entry("key", "x.so", make)
    """)
    env = environment(TILEFOUNDRY_HOME=str(home))
    job = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env)
    assert job.stdout is not None and job.stdout.readline() == b"begun\n"
    job.send_signal(signal.SIGKILL)
    job.wait()
    found = cache.entry("key", "x.so", made)
    assert not found.hit and found.library.read_text() == "library"
    parts = list((home / "cache" / "build").glob("*.part"))
    assert len(parts) == 1  # too young to be swept
    os.utime(parts[0], (0, 0))
    cache.entry("other", "x.so", made)
    assert not parts[0].exists()


def test_an_entry_without_its_library_is_made_again(home):
    folder = home / "cache" / "build" / "key"
    folder.mkdir(parents=True)
    assert cache.entry("key", "x.so", made).library.read_text() == "library"


def test_a_failure_leaves_no_entry(home):
    def fails(folder):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.entry("key", "x.so", fails)
    assert not list((home / "cache" / "build").glob("key*[!k]"))


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    blocked.chmod(stat.S_IRUSR)
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(blocked))
    with pytest.raises(Refusal, match="build-cache"):
        cache.entry("key", "x.so", made)


def test_an_entry_is_readable_as_the_users_mask_allows(home):
    mask = os.umask(0o027)
    try:
        entry = cache.entry("key", "x.so", made)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(entry.folder.stat().st_mode) == 0o750


def _of_another_user(answer, own, shared):
    if os.geteuid() == 0:
        os.setuid(65534)
    os.environ.update({"TILEFOUNDRY_HOME": str(own), cache.READ_ONLY: str(shared)})
    answer.put(str(cache.entry("key", "x.so", made).library))


@pytest.mark.parametrize("mode", [0o000, 0o711])
def test_a_cache_that_this_user_may_not_read(monkeypatch, mode):
    """Another user makes an entry of its own, wherever it is kept out: at a folder or a file."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o711)
        monkeypatch.setenv("TILEFOUNDRY_HOME", str(home / "theirs"))
        shared = cache.entry("key", "x.so", made)
        shared.library.chmod(0o200)
        shared.folder.chmod(mode)
        own = home / "own"
        own.mkdir()
        own.chmod(0o777)
        context = multiprocessing.get_context("fork")
        answer = context.Queue()
        process = context.Process(target=_of_another_user, args=(answer, own, cache.root()))
        process.start()
        assert answer.get(timeout=30) == str(own / "cache" / "build" / "key" / "x.so")
        process.join()
        shared.folder.chmod(0o700)


def test_a_cache_that_is_only_read(tmp_path, monkeypatch):
    """Its entries are hits; what it lacks is made in the cache that may be written."""

    def make(text):
        return lambda folder: (folder / "lib.so").write_text(text)

    monkeypatch.delenv("TILEFOUNDRY_CACHE", raising=False)
    monkeypatch.setenv("TILEFOUNDRY_HOME", str(tmp_path / "callers"))
    cache.entry("known", "lib.so", make("callers"))
    monkeypatch.setenv(cache.READ_ONLY, str(cache.root()))
    monkeypatch.setenv("TILEFOUNDRY_CACHE", str(tmp_path / "own"))
    known = cache.entry("known", "lib.so", make("another"))
    assert known.hit and known.library.read_text() == "callers"
    new = cache.entry("new", "lib.so", make("new"))
    assert not new.hit and new.library.is_relative_to(tmp_path / "own")
    assert cache.entry("new", "lib.so", make("another")).hit
    assert not (tmp_path / "callers" / "cache" / "build" / "new").exists()
