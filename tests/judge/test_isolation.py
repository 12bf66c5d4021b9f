"""What a program in the jail cannot do, tried by programs that try it.

Each attack runs as a file's top level in a real child and says what became of it. Where the
system lacks a protection, the record must say so: then the attack is not held to fail.
"""

import json
import os
import socket
import stat
import sys
import time
from pathlib import Path

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.judge import server
from tilefoundry.judge.jail import settings
from tilefoundry.judge.jail.enter import DEGRADED
from tilefoundry.judge.process import Child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
PROLOGUE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
said = {}
def tried(name, do):
    try:
        said[name] = repr(do())
    except BaseException as error:
        said[name] = type(error).__name__
def asked(number, *args):
    if libc.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno())
    return "done"
"""
EPILOGUE = """
print("SAID", json.dumps(said), flush=True)
"""


class Jailed:
    """A child that has loaded a program; its words, and what protects from it."""

    def __init__(self, folder, code, **more):
        self.place = folder / "judge"
        self.place.mkdir()
        path = folder / "attack.py"
        path.write_text(PROLOGUE + code + EPILOGUE)
        self.child = Child("candidate", self.place, more.pop("seconds", 60.0), "cpu", **more)
        self.code = ""
        try:
            self.child.ask("load", "loading", file=str(path), selector=None, consts={})
        except Refusal as refusal:  # the attacks declare no module
            (diag,) = refusal.diags
            self.code, self.diag = diag.code, diag

    @property
    def said(self):
        for line in self.child.words("stderr").splitlines():
            if line.startswith("SAID "):
                return json.loads(line[5:])
        raise AssertionError(self.child.words("stderr"))

    def holds(self, name):
        return not self.child.isolation[name].startswith(DEGRADED)


WITHOUT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import tilefoundry.judge.jail.server as e; "
    "import tilefoundry.judge.jail.system as s; refused = lambda *_: s.call('chroot', b'/none'); "
)
"""A jail's beginning, and a function that fails as a system call does that is not permitted."""


@pytest.fixture(params=["namespaces", "no namespaces"])
def reduced(request, monkeypatch):
    """The same with everything that the system has, and where it grants no namespaces."""
    if request.param == "no namespaces":
        monkeypatch.setattr(server, "BEGIN", WITHOUT + "s.unshare = refused; e.main()")


@pytest.fixture
def jailed(tmp_path):
    made = []

    def make(code, **more):
        made.append(Jailed(tmp_path, code, **more))
        return made[-1]

    yield make
    for one in made:
        one.child.close()


def test_the_record_says_what_holds(jailed):
    one = jailed("")
    record = one.child.isolation
    assert set(record) == {"processes", "network", "files", "limits", "user", "landlock", "calls"}
    assert all(record.values())


def test_only_who_reaches_no_process_is_kept_apart(reduced, jailed, request):
    one = jailed("")
    assert one.child.apart == (one.holds("processes") and one.holds("files"))
    assert not one.child.apart or request.node.callspec.params["reduced"] == "namespaces"


def test_the_command_is_out_of_reach(reduced, jailed):
    """No signal, no tracing, no memory of the process that judges."""
    ours = os.getpid()
    one = jailed(f"""
ours = {ours}
tried("signal", lambda: os.kill(ours, 0))
tried("group", lambda: os.kill(-{os.getpgid(0)}, 0))
tried("trace", lambda: asked(101, 16, ours, 0, 0))
tried("handle", lambda: asked(434, ours, 0))
tried("memory", lambda: open(f"/proc/{{ours}}/mem", "rb+"))
tried("environment", lambda: open(f"/proc/{{ours}}/environ", "rb").read())
tried("descriptors", lambda: os.readlink(f"/proc/{{ours}}/fd/0"))
tried("slower", lambda: os.sched_setaffinity(ours, [0]))
tried("parent", lambda: os.kill(os.getppid(), signal.SIGKILL))
""")
    said = one.said
    assert one.child.alive
    if not one.holds("processes") and not one.holds("calls") and not one.holds("user"):
        pytest.skip("neither namespaces nor filters nor another user here")
    for name in ("signal", "group", "trace", "handle", "slower"):
        assert said[name].endswith("Error"), (name, said)
    if one.holds("processes") or one.holds("user") or one.holds("landlock"):
        for name in ("memory", "environment", "descriptors"):
            assert said[name].endswith("Error"), (name, said)


SEEN = """
import re
def seen(marker):
    for line in open("/proc/self/maps"):
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if " r" in line and "[v" not in line and high - low < 1 << 28:
            with open("/proc/self/mem", "rb", 0) as memory:
                memory.seek(low)
                if re.search(marker, memory.read(high - low)):
                    return True
    return False
"""


def test_the_fork_server_is_out_of_reach(reduced, jailed, tmp_path):
    """Nor are a sibling, what was sent to it, and descriptors of the command or the server."""
    (tmp_path / "shared").mkdir()
    one = server.Server(tmp_path / "shared")
    sibling = Child("reference", tmp_path / "shared", 60.0, "cpu", server=one)
    try:
        marker = "told to " + "another child"
        with pytest.raises(Refusal):
            sibling.ask("load", "loading", file=marker, selector=None, consts={})
        here, other = one.process.pid, sibling.pid
        code = (
            SEEN
            + f"""
for name, pid in (("server", {here}), ("sibling", {other})):
    tried(name + " signal", lambda: os.kill(pid, signal.SIGKILL))
    tried(name + " trace", lambda: asked(101, 16, pid, 0, 0))
    tried(name + " memory", lambda: open(f"/proc/{{pid}}/mem", "rb+"))
    tried(name + " descriptors", lambda: os.readlink(f"/proc/{{pid}}/fd/0"))
tried("told", lambda: seen(rb"told to (?=another child)"))
tried("itself", lambda: seen(rb"told by (?=nobody at all)") or seen(rb"tried.(?=.told.,)"))
said["open"] = sorted(int(n) for n in os.listdir("/proc/self/fd"))
"""
        )
        two = jailed(code, server=one)
        said = two.said
        assert one.process.poll() is None and sibling.alive
        for name in ("server", "sibling"):
            if two.holds("processes") or two.holds("calls"):
                assert said[f"{name} trace"].endswith("Error"), said
            if two.holds("processes") or two.holds("user") or two.holds("landlock"):
                for what in ("memory", "descriptors"):
                    assert said[f"{name} {what}"].endswith("Error"), (name, what, said)
            assert said[f"{name} signal"].endswith("Error"), said
        assert said["told"] == "False" and said["itself"] == "True", said
        assert set(said["open"]) <= {0, 1, 2, 3, 4}, said  # the last lists the folder
    finally:
        sibling.close()
        two.child.close()
        one.close()


def test_no_network(reduced, jailed, tmp_path):
    served = socket.socket(socket.AF_UNIX)
    served.bind(str(tmp_path / "server"))
    served.listen()
    open_port = socket.create_server(("127.0.0.1", 0))
    port = open_port.getsockname()[1]
    one = jailed(f"""
def to(family, address):
    with socket.socket(family) as end:
        end.settimeout(2)
        end.connect(address)
tried("port", lambda: to(socket.AF_INET, ("127.0.0.1", {port})))
tried("server", lambda: to(socket.AF_UNIX, {str(tmp_path / "server")!r}))
pair = socket.socketpair()
tried("pair", lambda: pair[0].send(b"x"))
tried("ring", lambda: asked(425, 8, ctypes.create_string_buffer(256)))
""")
    said = one.said
    served.close()
    open_port.close()
    assert said["pair"] == "1"
    if one.holds("network"):
        assert said["port"].endswith("Error"), said
    if one.holds("calls"):
        assert said["server"].endswith("Error") and said["ring"] == "OSError", said


def test_files_are_read_only(reduced, jailed, tmp_path):
    (tmp_path / "source.py").write_text("x = 1\n")
    (tmp_path / "expected.pt").write_text("the answer")
    one = jailed(f"""
here = {str(tmp_path)!r}
tried("source", lambda: open(here + "/source.py", "w"))
tried("mode", lambda: os.chmod(here + "/source.py", 0o777))
tried("new", lambda: open(here + "/new", "w"))
tried("gone", lambda: os.unlink(here + "/source.py"))
tried("tmp", lambda: open("/tmp/tilefoundry_was_here", "w"))
tried("judge", lambda: open("{__file__}", "a"))
tried("reads", lambda: open(here + "/source.py").read())
tried("answer", lambda: open(here + "/expected.pt").read())
tried("again", lambda: open("/proc/self/cwd/../" + here + "/expected.pt").read())
tried("folder", lambda: os.listdir(here + "/judge/secret"))
tried("own", lambda: open(os.environ["TMPDIR"] + "/a", "w").write("a"))
tried("home", lambda: open(os.path.expanduser("~/a"), "w").write("a"))
""", hidden=[str(tmp_path / "expected.pt")])  # fmt: skip
    said = one.said
    assert (said["own"], said["home"], said["reads"]) == ("1", "1", repr("x = 1\n"))
    if one.holds("files") or one.holds("user"):
        for name in ("source", "new", "gone", "tmp", "judge"):
            assert said[name].endswith("Error"), (name, said)
    if one.holds("files"):
        assert "the answer" not in said["answer"] + said["again"], said
    if one.child.isolation["files"] == "read-only" or one.holds("user"):
        assert said["mode"].endswith("Error"), said
    assert (tmp_path / "source.py").read_text() == "x = 1\n"
    assert not Path("/tmp/tilefoundry_was_here").exists()


def test_a_program_on_a_cpu_reaches_no_device(jailed, tmp_path, monkeypatch):
    """It would compute for the program, also while that stands still; /dev/zero stands for one."""
    there = tmp_path / "dev"
    (there / "dri").mkdir(parents=True)
    nodes = [there / "accelerator", there / "dri" / "card0", there / "null"]
    try:
        for node in nodes:
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            node.chmod(0o666)
        os.close(os.open(nodes[0], os.O_RDWR))
    except OSError:
        pytest.skip("device files cannot be made here")
    monkeypatch.setattr(settings, "DEVICES", str(there))
    one = jailed("".join(
        f"tried({n.name!r}, lambda: os.read(os.open({str(n)!r}, os.O_RDONLY), 1))\n" for n in nodes
    ))  # fmt: skip
    if one.holds("files") and not one.child.isolation["files"].endswith("(landlock)"):
        for name in ("accelerator", "card0"):
            assert one.said[name] == repr(b"") or one.said[name].endswith("Error"), one.said
    assert one.said["null"] == repr(b"\0")


def test_what_a_program_sees(jailed, tmp_path, monkeypatch):
    """No open file but its own streams and socket, no variable that the judge did not choose."""
    monkeypatch.setenv("SECRET_SEED", "1234567890123456")
    kept = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(kept, True)
    one = jailed("""
said["open"] = sorted(int(n) for n in os.listdir("/proc/self/fd")
                      if os.path.exists(f"/proc/self/fd/{n}"))
said["links"] = [os.readlink(f"/proc/self/fd/{n}") for n in said["open"]]
said["environment"] = dict(os.environ)
said["path"] = sys.path
said["argv"] = sys.argv
""")
    os.close(kept)
    said = one.said
    assert set(said["open"]) <= {0, 1, 2, 3} and said["links"][0] == "/dev/null"
    assert "1234567890123456" not in json.dumps(said)
    assert "PYTHONPATH" not in said["environment"]
    home = str(one.place)
    for name in ("TMPDIR", "HOME"):
        assert said["environment"][name].startswith(home)


def test_the_filter_refuses_ways_out(jailed):
    one = jailed("""
tried("users", lambda: asked(272, 0x10000000))
tried("clone", lambda: asked(56, 0x10000000 | 17, 0, 0, 0, 0))
tried("mount", lambda: libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) and 1 / 0)
tried("root", lambda: os.setuid(0))
tried("events", lambda: asked(298, ctypes.create_string_buffer(128), 0, -1, -1, 0))
tried("shared", lambda: asked(29, 0, 4096, 0o1600))
""")
    if not one.holds("calls"):
        pytest.skip(one.child.isolation["calls"])
    said = one.said
    assert all(said[name].endswith("Error") for name in ("users", "mount", "events", "shared")), (
        said
    )
    assert said["clone"].endswith("Error"), said
    if one.holds("user"):
        assert said["root"] == "PermissionError"


def test_modules_beside_a_program_are_not_the_judges(jailed, tmp_path):
    """Files by the names of modules that the judge's own code imports, there and in a folder
    that PYTHONPATH names."""
    for name in ("sitecustomize", "usercustomize", "json", "socket", "struct", "tilefoundry"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    os.environ["PYTHONPATH"], before = str(tmp_path), os.environ.get("PYTHONPATH")
    try:
        one = jailed("said['went'] = 'on'")
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    assert one.said == {"went": "on"}


SLEEPERS = """
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
mark = {mark!r}
subprocess.Popen([*sleep, mark], start_new_session=True, env={{}})
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 64)
    os.execv(sys.executable, [*sleep, mark])
for what in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(what, signal.SIG_IGN)
time.sleep(0.3)
"""


def states(mark):
    """The state letters of the processes whose command line has ``mark``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "cmdline").read_bytes():
                found.append((path / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return "".join(found)


def settled(mark, holds):
    """Whether the states come to be as wanted: a signal takes a moment."""
    until = time.monotonic() + 20
    while not (found := holds(states(mark))) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def test_nothing_that_a_program_starts_outlives_it(reduced, jailed, tmp_path):
    """Daemons in sessions of their own, without environment and without open files, are stopped,
    continued and killed with it."""
    mark = f"sleeper-{tmp_path.name}-{os.getpid()}"
    one = jailed(SLEEPERS.format(mark=mark))
    assert settled(mark, lambda seen: len(seen) == 2 and "T" not in seen)
    one.child.stop()
    assert settled(mark, lambda seen: seen == "TT")
    one.child.go()
    assert settled(mark, lambda seen: len(seen) == 2 and "T" not in seen)
    one.child.close()
    assert settled(mark, lambda seen: seen == "")


@pytest.mark.parametrize("code, how", [
    ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ("ctypes.string_at(0)", "killed by SIGSEGV"),
    ("os._exit(3)", "exited with code 3"),
    ("os.closerange(0, 256)\ntime.sleep(0.1)\nos._exit(0)", "exited with code 0"),
    ("for n in range(1, 256):\n    try: os.write(n, b'\\x10\\0\\0\\0' + b'{\"SAID\": 1}' * 9)\n"
     "    except OSError: pass\n", "it sent a message that is not JSON"),
])  # fmt: skip
def test_ends_of_a_program(jailed, code, how):
    one = jailed(code)
    assert one.code == "check-candidate-died" and one.diag.found == how, one.diag.text()


def test_words_without_end(jailed):
    """A program that fills every pipe is heard, and only its last words are kept."""
    one = jailed("sys.stderr.write('x' * (3 << 20) + '\\n')\nos.write(1, b'y' * (3 << 20))\n")
    assert one.said == {} and len(one.child.words("stdout")) == 1 << 20


def test_a_fork_bomb(reduced, jailed):
    one = jailed("""
made, pid = 0, 1
while True:
    try:
        pid = os.fork()
    except OSError as error:
        said["error"] = error.errno
        break
    if not pid:
        time.sleep(600)
        os._exit(0)
    made += 1
said["made"] = made
""")
    assert one.said["error"] == 11 and 100 < one.said["made"] < 20_000
    here = one.child.server.pid(one.child.place)
    one.child.close()
    assert not Path(f"/proc/{here}").exists()


@pytest.mark.parametrize("code", [
    "kept = []\nwhile True: kept.append(bytearray(1 << 28))",
    "import mmap\nkept = [mmap.mmap(-1, 1 << 26) for _ in range(1024)]\n"
    "for m in kept:\n    for at in range(0, 1 << 26, 4096): m[at] = 1\ntime.sleep(30)",
])  # fmt: skip
def test_memory_without_end(jailed, code, monkeypatch):
    """Private and shared: the second is no data of one process's."""
    monkeypatch.setattr(settings, "_memory", lambda: 600 << 20)
    one = jailed(code)
    if one.code == "source-failed":
        assert "MemoryError" in one.diag.says
    else:
        assert one.code == "check-candidate-died" and "MiB" in one.diag.found, one.diag.text()


def test_a_full_disk(jailed, monkeypatch):
    monkeypatch.setattr(settings, "DISK_BYTES", 8 << 20)
    one = jailed("""
def fill():
    with open(os.environ["TMPDIR"] + "/big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
            said["bytes"] = file.tell()
tried("fill", fill)
""")
    assert one.said["fill"] == "OSError" and one.said["bytes"] <= 16 << 20


def test_where_nothing_is_allowed_it_is_said(jailed, monkeypatch):
    """Without namespaces, filters and other users every loss is in the record, a program runs
    all the same, and the command's memory is closed to it even so."""
    nothing = "s.unshare = l.version = c.install = refused; e.main()"
    imports = "import tilefoundry.judge.jail.landlock as l, tilefoundry.judge.jail.seccomp as c; "
    monkeypatch.setattr(server, "BEGIN", WITHOUT + imports + nothing)
    monkeypatch.setattr(settings, "_user", lambda number: (0, "no other user"))
    ours = os.getpid()
    one = jailed(f"""
tried("memory", lambda: open("/proc/{ours}/mem", "rb"))
tried("environment", lambda: open("/proc/{ours}/environ", "rb").read())
""")
    assert one.said == {"memory": "PermissionError", "environment": "PermissionError"}
    degraded = {name for name, how in one.child.isolation.items() if how.startswith(DEGRADED)}
    assert degraded == {"processes", "network", "files", "user", "landlock", "calls"}


def test_threads_can_be_named(reduced, jailed):
    """What CUDA does before anything else; in a process that the program starts, too, where
    processes have a namespace."""
    one = jailed("""
def name():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        return file.write("named")
import threading
tried("here", name)
tried("others", lambda: open(f"/proc/{os.getppid()}/oom_score_adj", "w").write("1000"))
""")
    assert one.said["here"] == "5" and one.said["others"] != "4", one.said
