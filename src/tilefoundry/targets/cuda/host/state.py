"""What a CUDA device says of itself: name, driver, clocks, temperature, power, what slows it."""

from __future__ import annotations

import ctypes
import subprocess

from tilefoundry.diag import Refusal
from tilefoundry.targets.cuda.host import driver

FIELDS = {
    "name": "name",
    "driver": "driver_version",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "limit_watts": "power.limit",
    "slowed_by": "clocks_throttle_reasons.active",
    "other_bytes": "memory.used",
}
"""Names here, and those of nvidia-smi --query-gpu."""


def state(ordinal: int) -> dict[str, str]:
    """The fields that nvidia-smi knows of the driver's device ``ordinal``; empty where there is
    no nvidia-smi."""
    place = bus(ordinal)
    words = ["nvidia-smi", f"--id={place}", "--format=csv,noheader,nounits",
             f"--query-gpu={','.join(FIELDS.values())}"]  # fmt: skip
    if not place:
        return {}
    try:
        done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = [word.strip() for word in done.stdout.strip().split(",")]
    if done.returncode or len(found) != len(FIELDS):
        return {}
    return {name: word for name, word in zip(FIELDS, found, strict=True) if word != "[N/A]"}


def bus(ordinal: int) -> str:
    """Where a device is on the PCI bus; empty where it is not known. nvidia-smi has other numbers
    than the driver, which counts visible devices alone, the fastest first."""
    try:
        lib = driver.library()
    except Refusal:
        return ""
    device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    failed = lib.cuDeviceGet(ctypes.byref(device), ordinal) or lib.cuDeviceGetPCIBusId(
        text, len(text), device
    )
    return "" if failed else text.value.decode()


def count() -> int:
    """The devices that the driver has; 0 without a driver."""
    try:
        lib = driver.library()
    except Refusal:
        return 0
    found = ctypes.c_int()
    return found.value if lib.cuDeviceGetCount(ctypes.byref(found)) == 0 else 0
