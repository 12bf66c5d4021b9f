"""Linux system calls that Python has no function for, through libc."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from functools import cache
from pathlib import Path
from typing import Any

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
"""unshare(2)"""
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
"""mount(2)"""
SET_PDEATHSIG, SET_DUMPABLE, SET_NO_NEW_PRIVS, SET_SECCOMP = 1, 4, 38, 22
SET_KEEPCAPS, SET_SUBREAPER, CAP_AMBIENT = 8, 36, 47
"""prctl(2)"""
CAP_DAC_READ_SEARCH, LAST_CAP = 2, 40
OPTIONS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC, "noatime": 1024,
           "nodiratime": 2048, "relatime": 1 << 21}  # fmt: skip


@cache
def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: Any) -> int:
    """A function of libc; OSError where it answers with -1."""
    found = getattr(libc(), name)(*args)
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(found)


def syscall(number: int, *args: Any) -> int:
    return call("syscall", ctypes.c_long(number), *args)


def prctl(option: int, *args: int) -> int:
    given = [ctypes.c_ulong(a) for a in (*args, 0, 0, 0, 0)[:4]]
    return call("prctl", option, *given)


def unshare(flags: int) -> None:
    call("unshare", flags)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode() or None,
         ctypes.c_ulong(flags), data.encode() or None)  # fmt: skip


def read_only() -> None:
    """Make every mount of this namespace read-only, whatever is mounted in it later."""
    attributes = struct.pack("<4Q", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY
    try:
        recursive = 0x8000  # AT_RECURSIVE
        syscall(442, -1, b"/", recursive, attributes, len(attributes))  # mount_setattr(2)
        return
    except OSError:  # before Linux 5.12
        pass
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split()
        place = words[4].encode().decode("unicode_escape")
        kept = sum(OPTIONS.get(option, 0) for option in words[5].split(","))
        mount("", place, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def hold_capabilities(kept: int) -> None:
    """Hold no capability but those of the set ``kept``; programs started later keep them."""
    head = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    low, high = kept & 0xFFFFFFFF, kept >> 32
    call("capset", head, struct.pack("<6I", low, low, low, high, high, high))
    for number in range(LAST_CAP + 1):
        if kept >> number & 1:
            prctl(CAP_AMBIENT, 2, number)  # PR_CAP_AMBIENT_RAISE


def machine() -> str:
    """``x86_64`` or ``aarch64`` where the numbers of system calls are known, else empty."""
    name = platform.machine()
    return name if name in ("x86_64", "aarch64") and ctypes.sizeof(ctypes.c_long) == 8 else ""
