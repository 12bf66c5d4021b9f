"""What a machine needs to compile and run CUDA kernels."""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import cache
from pathlib import Path

from tilefoundry.build.finding import Finding, program
from tilefoundry.diag import Refusal
from tilefoundry.targets.cuda.host import driver
from tilefoundry.targets.cuda.host.compiler import ARCH, compiler
from tilefoundry.targets.target import Target

VERSION = Path("/proc/driver/nvidia/version")


MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, CUDA driver API."""


def lacks(target: Target) -> tuple[str, ...]:
    """A driver, or a device that executes code for ``target``."""
    needed = ARCH.removeprefix("sm_").rstrip("a")
    wanted = f"a device of compute capability {needed[:-1]}.{needed[-1]}"
    try:
        have = capabilities()
    except Refusal:
        return ("an NVIDIA driver",)
    return () if needed in have else (wanted,)


@cache
def capabilities() -> tuple[str, ...]:
    """The compute capability of each device, such as ``90``; refuses a machine without a driver."""
    library = driver.library()
    count = ctypes.c_int()
    driver.check(library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    out: list[str] = []
    for ordinal in range(count.value):
        device, found = ctypes.c_int(), ctypes.c_int()
        driver.check(library.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        digits = ""
        for attribute in (MAJOR, MINOR):
            driver.check(library.cuDeviceGetAttribute(ctypes.byref(found), attribute, device),
                         "cuDeviceGetAttribute")  # fmt: skip
            digits += str(found.value)
        out.append(digits)
    return tuple(out)


def findings() -> list[Finding]:
    """The compiler, as ``$NVCC`` may name it, or the library in its place; the driver."""
    wanted = os.environ.get("NVCC")
    places = [wanted] if wanted else ["nvcc", "/usr/local/cuda/bin/nvcc"]
    found = [program("nvcc", places, "twins and kernels in CUDA C++")]
    if not found[0].there:
        with contextlib.suppress(Refusal):
            path, version = compiler()
            found.append(Finding("NVRTC", True, f"{path}: {version}", "kernels in CUDA C++"))
    serves = "running CUDA kernels"
    try:
        said = VERSION.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return [*found, Finding("NVIDIA driver", False, f"no {VERSION}", serves)]
    return [*found, Finding("NVIDIA driver", True, said, serves)]
