"""The processes of a jail, from the first to the child: ``supervise`` is where they begin.

    fork server ── supervisor ── first (pid 1) ── child (pid 2)

The supervisor keeps the command's rights, and has no other task than to wait. The first process
sees to the child: it stops, continues and ends all that lives in the namespace, where nothing
can be hidden from it, and tells how the child ended. Where there are no namespaces, it adopts
what its descendants leave behind instead.
Each protection is tried; the record says which hold, and why the others do not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tilefoundry.judge.jail import landlock, seccomp, system, tree
from tilefoundry.judge.wire import receive, send

POLL_SECONDS = 0.25
"""How often the memory of all processes together is looked at."""
ENDING_SECONDS = 5.0
DEGRADED = "degraded: "
LINUX = sys.platform == "linux"
Record = dict[str, str]


def supervise(asked: dict[str, Any], numbers: list[int]) -> NoReturn:
    """Start a jail and wait for its end; ``numbers`` are the child's socket, that to the
    command, stdout and stderr. The second stays open as long as anything of the jail lives."""
    control = socket.socket(fileno=numbers[1])
    record: Record = {}
    separate = LINUX and _attempt(record, "processes", "namespace", _process_namespace)
    asked["separate"] = separate
    asked["threads"] = tree.threads_of(os.getuid())
    asked["supervisor"] = os.getpid()
    if LINUX:
        with contextlib.suppress(OSError):
            system.prctl(system.SET_SUBREAPER, 1)
    if not (first := os.fork()):
        try:
            _first(asked, record, control, numbers)
        finally:
            os._exit(70)
    for number in numbers:
        if number != control.fileno():
            os.close(number)
    _wait_for(first)
    _end_all(os.getpid())
    os._exit(0)


def _attempt(record: Record, name: str, how: str, do: Callable[[], Any]) -> bool:
    """Whether a protection could be put in force; the record says which, or why not."""
    try:
        do()
    except (OSError, ValueError) as error:
        record[name] = f"{DEGRADED}{error}"
        return False
    record[name] = how
    return True


def _process_namespace() -> None:
    """New processes see only each other; tried in a process of its own before, since a
    namespace without its own /proc is worse than none, and there is no way back."""
    _tried(_seen_alone)
    _alone()


def _seen_alone() -> None:
    _alone()
    _tried(_own_proc)


def _own_proc() -> None:
    system.unshare(system.NEWNS)
    system.mount("", "/", "", system.MS_REC | system.MS_PRIVATE)
    _mount_proc()


def _mount_proc() -> None:
    plain = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC
    system.mount("proc", "/proc", "proc", plain)


def _tried(do: Callable[[], None]) -> None:
    """Do something in a process of its own; OSError where it fails there."""
    if not (pid := os.fork()):
        code = 1
        try:
            do()
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(code, os.strerror(code))


def _alone() -> None:
    """A namespace of processes; without privileges by way of one of users."""
    if os.geteuid() == 0:
        system.unshare(system.NEWPID)
        return
    uid, gid = os.geteuid(), os.getegid()
    system.unshare(system.NEWUSER | system.NEWPID)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"),
                       ("gid_map", f"{gid} {gid} 1")):  # fmt: skip
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _wait_for(pid: int) -> int:
    """The status of a process, what else ends meanwhile taken too."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        if ended == pid:
            return status


# ---- the first process


def _first(
    asked: dict[str, Any], record: Record, control: socket.socket, numbers: list[int]
) -> NoReturn:
    if LINUX:
        system.prctl(system.SET_PDEATHSIG, signal.SIGKILL)
        if not asked["separate"]:
            system.prctl(system.SET_SUBREAPER, 1)
        _surroundings(asked, record)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked["first"] = os.getpid()
    if not (child := os.fork()):
        _child(asked, record, numbers)
    for number in numbers:
        if number != control.fileno():
            os.close(number)
    if LINUX:
        with contextlib.suppress(OSError):
            system.prctl(system.SET_DUMPABLE, 0)
    _serve(control, wake, child, asked)


def _surroundings(asked: dict[str, Any], record: Record) -> None:
    """Namespaces beside that of processes: files, network, shared memory of System V."""
    if not asked["separate"]:
        for name in ("network", "files"):
            record[name] = f"{DEGRADED}no namespaces"
        return
    _attempt(record, "network", "namespace", lambda: system.unshare(system.NEWNET))
    with contextlib.suppress(OSError):
        system.unshare(system.NEWIPC)
    if _attempt(record, "files", "read-only", lambda: system.unshare(system.NEWNS)):
        asked["mounted"] = _attempt(record, "files", "read-only", lambda: _view(asked))
        _attempt(record, "processes", "namespace", _mount_proc)


def _view(asked: dict[str, Any]) -> None:
    """Everything read-only, but for memory of its own that bounds what it can store."""
    system.mount("", "/", "", system.MS_REC | system.MS_PRIVATE)
    user, folder = asked["user"], asked["folder"]
    own = f"size={asked['disk']},mode=0711,uid={user},gid={user}"
    hidden = [*(os.path.realpath(path) for path in asked["hidden"]), *asked["closed"]]
    plain = system.MS_NOSUID | system.MS_NODEV
    system.read_only()
    system.mount("tmpfs", folder, "tmpfs", plain, own)
    blank = (os.path.join(folder, "nothing"), os.path.join(folder, "none"))
    os.mkdir(blank[0], 0)
    os.close(os.open(blank[1], os.O_CREAT | os.O_WRONLY, 0))
    for path in hidden:
        if os.path.exists(path) and not path.startswith(folder + os.sep):
            system.mount(blank[0] if os.path.isdir(path) else blank[1], path, "", system.MS_BIND)
    if os.path.isdir("/dev/shm"):
        system.mount("tmpfs", "/dev/shm", "tmpfs", plain, own)
    for path in asked["own"]:
        os.makedirs(path, mode=0o700)
        os.chown(path, user, user)
    os.chown(os.path.dirname(asked["own"][0]), user, user)


def _serve(control: socket.socket, wake: int, child: int, asked: dict[str, Any]) -> NoReturn:
    """Do what the command asks until the child or the command ends; then end all."""
    limit, here = asked["memory"], os.getpid()
    why = ""
    ended: int | None = None
    while ended is None:
        ready, _, _ = select.select([control, wake], [], [], POLL_SECONDS)
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        ended = _reap(child)
        if ended is None and control in ready:
            message = receive(control)
            if message is None or message["do"] == "end":
                break
            _signal_all(here, signal.Signals[message["do"]], asked["separate"])
            send(control, {"done": message["do"]})
        if limit and not ready and (held := tree.resident(tree.descendants(here))) > limit:
            why = f"it and what it started held {held >> 20} MiB of {limit >> 20} MiB"
            os.kill(child, signal.SIGKILL)
    _signal_all(here, signal.SIGKILL, asked["separate"])
    if ended is not None:
        with contextlib.suppress(OSError):
            send(control, {"status": ended, "why": why})
    os._exit(0)


def _reap(child: int) -> int | None:
    """The status of the child if it has ended; whatever else has ended is taken too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == child:
            return status
        if not pid:
            return None


def _signal_all(here: int, what: signal.Signals, separate: bool) -> None:
    """A signal to all but this process: in a namespace at once, else until none is new."""
    if separate:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, what)
    elif what == signal.SIGKILL:
        _end_all(here)
    else:
        seen: set[int] = set()
        while new := set(tree.descendants(here)) - seen:
            _send(new, what)
            seen |= new


def _send(pids: set[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, what)


def _end_all(here: int) -> None:
    """Kill all that descends from this process, which has adopted what had no parent left."""
    until = time.monotonic() + ENDING_SECONDS
    while time.monotonic() < until and (found := set(tree.descendants(here))):
        _send(found, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


# ---- the child


def _child(asked: dict[str, Any], record: Record, numbers: list[int]) -> NoReturn:
    """Give up what the child must not have, then serve requests."""
    try:
        signal.set_wakeup_fd(-1)
        for what in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(what, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        requests = _descriptors(numbers)
        _limits(asked, record)
        if LINUX:
            _give_up(asked, record)
        else:
            record["user"] = record["files"] = f"{DEGRADED}not on {sys.platform}"
        from tilefoundry.judge.child import main as serve

        serve(requests, record)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


def _descriptors(numbers: list[int]) -> socket.socket:
    """Standard streams and the one socket; nothing else is open."""
    requests, _, out, err = numbers
    null = os.open(os.devnull, os.O_RDONLY)
    kept = os.dup(requests)
    while kept < 3:
        kept = os.dup(kept)
    for number, place in ((null, 0), (out, 1), (err, 2)):
        os.dup2(number, place)
    os.dup2(kept, 3)
    os.set_inheritable(3, False)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    return socket.socket(fileno=3)


def _limits(asked: dict[str, Any], record: Record) -> None:
    import resource

    wanted = dict(asked["limits"])
    wanted["NPROC"] += 0 if os.getuid() == 0 else asked["threads"]
    held: list[str] = []
    for name, most in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (bound, bound))
        except (OSError, ValueError) as error:
            record["limits"] = f"{DEGRADED}{name.lower()}: {error}"
        else:
            held.append(f"{name.lower()}={bound}")
    if asked["memory"]:
        held.append(f"memory={asked['memory']}")
    record.setdefault("limits", " ".join(held))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # first to go where memory runs out, before the command


def _give_up(asked: dict[str, Any], record: Record) -> None:
    """User, capabilities, files, system calls: in the order in which each needs the former."""
    user = asked["user"]
    if asked["drop"]:
        kept = 0 if asked["reachable"] else 1 << system.CAP_DAC_READ_SEARCH
        words = f"uid={user}" + ("" if not kept else ", reads what root reads: "
                                 + asked["unreachable"])  # fmt: skip
        _attempt(record, "user", words, lambda: _become(user, asked["groups"], kept))
    else:
        record["user"] = f"{DEGRADED}{asked['why_user']}"
        with contextlib.suppress(OSError):
            system.hold_capabilities(0)
    if os.geteuid() != 0 or not record["user"].startswith(DEGRADED):
        system.prctl(system.SET_DUMPABLE, 1)
    system.prctl(system.SET_PDEATHSIG, signal.SIGKILL)
    system.prctl(system.SET_NO_NEW_PRIVS, 1)
    hidden = [*asked["hidden"], *([] if asked.get("mounted") else asked["private"])]
    # threads are named in /proc, without which CUDA does not start; of others' it is closed
    writable = [
        *asked["own"],
        *asked["devices"],
        "/proc" if asked["separate"] or asked["drop"] else "/proc/self",
    ]
    _attempt(record, "landlock", "read-only files, no signals outside",
             lambda: landlock.restrict(hidden, writable))  # fmt: skip
    spared = [] if asked["separate"] else [
        asked["command"], asked["group"], asked["server"], asked["supervisor"], asked["first"]
    ]  # fmt: skip
    if _attempt(record, "calls", "filtered", lambda: seccomp.install(spared)) and record[
        "network"
    ].startswith(DEGRADED):
        record["network"] = "system calls filtered"
    if record["files"].startswith(DEGRADED) and not record["landlock"].startswith(DEGRADED):
        record["files"] = "read-only (landlock)"


def _become(user: int, groups: list[int], kept: int) -> None:
    system.prctl(system.SET_KEEPCAPS, 1)
    os.setgroups(groups)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    system.hold_capabilities(kept)
