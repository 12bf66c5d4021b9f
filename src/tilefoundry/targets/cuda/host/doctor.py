"""What a machine needs to compile and run CUDA kernels."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tilefoundry.build.finding import Finding, program
from tilefoundry.diag import Refusal
from tilefoundry.targets.cuda.host.compiler import compiler

VERSION = Path("/proc/driver/nvidia/version")


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
