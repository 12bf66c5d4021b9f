"""The filter of system calls: what no tensor program needs and the judge must be safe from.

Numbers are those of Linux's syscall tables; the filter is classic BPF over seccomp_data
(seccomp(2)). A refused call answers EPERM; clone3 answers ENOSYS, since its flags lie in memory
that a filter cannot read, and libc then calls clone.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence

from tilefoundry.judge.jail import system

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED: dict[str, tuple[int, int]] = {
    # looking into other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "perf_event_open": (298, 241),
    # ways around this filter or around the view of files
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "bpf": (321, 280), "open_by_handle_at": (304, 265),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "setns": (308, 268), "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # the machine
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "acct": (163, 89), "syslog": (103, 116),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # memory that outlives its processes
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
"""Calls that are refused: their numbers on x86_64 and on aarch64."""
AIMED: dict[str, tuple[tuple[int, int], int]] = {
    "kill": ((62, 129), 0), "tkill": ((200, 130), 0), "tgkill": ((234, 131), 0),
    "rt_sigqueueinfo": ((129, 138), 0), "rt_tgsigqueueinfo": ((297, 240), 0),
    "pidfd_open": ((434, 434), 0), "prlimit64": ((302, 261), 0),
    "sched_setaffinity": ((203, 122), 0), "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0), "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1), "migrate_pages": ((256, 238), 0), "move_pages": ((279, 239), 0),
}  # fmt: skip
"""Calls that are aimed at a process: the argument that names it."""
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), 435, (41, 198), (53, 199)
CONNECT, SENDTO = (42, 203), (44, 206)
"""Also to sockets of files: another server of the user's would act for the caller."""
NAMESPACES = 0x7E020000
"""CLONE_NEW* flags: mount, cgroup, uts, ipc, user, pid, net."""
AF_UNIX = 1

LOAD, AND, EQUAL, ATLEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NR, ARCH, ARGS = 0, 4, 16
X32 = 0x40000000


def program(machine: str, spared: Sequence[int]) -> bytes:
    """The filter's instructions; ``spared`` are processes that no call may be aimed at."""
    at = 0 if machine == "x86_64" else 1
    code: list[tuple[int, int, int, int]] = []

    def answer(error: int) -> tuple[int, int, int, int]:
        return (RETURN, 0, 0, ERRNO | error)

    code += [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, KILL)]
    code += [(LOAD, 0, 0, NR), (ATLEAST, 0, 1, X32), answer(errno.ENOSYS)]
    code += [(EQUAL, 0, 1, CLONE3), answer(errno.ENOSYS)]
    for numbers in REFUSED.values():
        code += [(EQUAL, 0, 1, numbers[at]), answer(errno.EPERM)]
    code += [(EQUAL, 0, 5, CLONE[at]), (LOAD, 0, 0, ARGS), (AND, 0, 0, NAMESPACES),
             (EQUAL, 1, 0, 0), answer(errno.EPERM), (RETURN, 0, 0, ALLOW)]  # fmt: skip
    code += [(EQUAL, 0, 1, CONNECT[at]), answer(errno.ECONNREFUSED)]
    # sendto with an address, which lies below 2**32 only in programs that we do not run
    code += [(EQUAL, 0, 4, SENDTO[at]), (LOAD, 0, 0, ARGS + 8 * 4 + 4), (EQUAL, 1, 0, 0),
             answer(errno.EPERM), (RETURN, 0, 0, ALLOW)]  # fmt: skip
    for family in (SOCKET, SOCKETPAIR):
        code += [(EQUAL, 0, 4, family[at]), (LOAD, 0, 0, ARGS), (EQUAL, 1, 0, AF_UNIX),
                 answer(errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]  # fmt: skip
    targets = sorted({p & 0xFFFFFFFF for pid in spared for p in (pid, -pid)})
    if targets:
        targets.append(0xFFFFFFFF)  # every process
        for numbers, argument in AIMED.values():
            tests = [(EQUAL, len(targets) - n, 0, pid) for n, pid in enumerate(targets)]
            body = [(LOAD, 0, 0, ARGS + 8 * argument), *tests, (RETURN, 0, 0, ALLOW),
                    answer(errno.EPERM)]  # fmt: skip
            code += [(EQUAL, 0, len(body), numbers[at]), *body]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def install(spared: Sequence[int]) -> None:
    """Filter this process and all that it starts, for good; needs no_new_privs."""
    machine = system.machine()
    if not machine:
        raise OSError(errno.ENOSYS, "this machine's system calls are not known")
    filter = program(machine, spared)
    held = ctypes.create_string_buffer(filter, len(filter))
    head = struct.pack("<HxxxxxxQ", len(filter) // 8, ctypes.addressof(held))
    kept = ctypes.create_string_buffer(head, len(head))
    system.prctl(system.SET_SECCOMP, 2, ctypes.addressof(kept))
