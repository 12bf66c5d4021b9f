"""What a machine needs to compile and run CUDA kernels."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.build.finding import Finding, program

VERSION = Path("/proc/driver/nvidia/version")


def findings() -> list[Finding]:
    """The compiler and the driver."""
    nvcc = program("nvcc", ["nvcc", "/usr/local/cuda/bin/nvcc"], "twins and kernels in CUDA C++")
    serves = "running CUDA kernels"
    try:
        found = VERSION.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return [nvcc, Finding("NVIDIA driver", False, f"no {VERSION}", serves)]
    return [nvcc, Finding("NVIDIA driver", True, found, serves)]
