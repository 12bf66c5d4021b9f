"""Which library computes, and which of its kernels: in their own words."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HOLDING = ("OPENBLAS_", "MKL_", "DNNL_", "ONEDNN_", "KMP_", "OMP_", "GOMP_", "ATEN_", "BLIS_",
           "NPY_", "GOTO_", "VECLIB_", "TORCH_", "MALLOC_", "GLIBC_", "LD_PRELOAD")  # fmt: skip
"""Beginnings of variables by which a library can be held back: no process is given one."""
SYMBOLS = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")


def unset(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Variables of the caller that the measured processes do not get."""
    return sorted(name for name in environment if name.startswith(HOLDING))


def describe() -> dict[str, str]:
    """Name and version of each library that is loaded here, with its kernels' family."""
    found: dict[str, str] = {}
    if "torch" in sys.modules:
        import torch

        config = torch.__config__.show()
        named = re.findall(
            r"(Intel\(R\) MKL-DNN v\S+|oneAPI Math Kernel Library Version \S+)", config
        )
        found["torch"] = " ".join(
            [torch.__version__, f"threads={torch.get_num_threads()}",
             f"capability={torch.backends.cpu.get_cpu_capability()}", *named]
        )  # fmt: skip
    if "numpy" in sys.modules:
        import numpy

        config: Any = numpy.show_config(mode="dicts")
        blas = config.get("Build Dependencies", {}).get("blas", {})
        said = [str(blas.get("name", "")), str(blas.get("version", ""))]
        found["numpy"] = " ".join([numpy.__version__, *filter(None, said), *_core()])
    return found


def _core() -> Iterable[str]:
    """``core=SkylakeX``: the kernels that OpenBLAS chose for this machine."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return
    for path in dict.fromkeys(re.findall(r"/\S*openblas\S*", maps)):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in SYMBOLS:
            if hasattr(library, name):
                ask = getattr(library, name)
                ask.restype = ctypes.c_char_p
                yield f"core={(ask() or b'').decode()}"
                return


def kernels(said: str) -> list[str]:
    """The distinct kernels that oneDNN and MKL named in ``said``, in order."""
    found: list[str] = []
    for line in said.splitlines():
        words = line.split(",")
        if line.startswith(("dnnl_verbose", "onednn_verbose")) and "exec" in words:
            at = words.index("exec")
            if len(words) > at + 3:
                found.append(" ".join(["oneDNN", *words[at + 2 : at + 4]]))
        elif line.startswith("MKL_VERBOSE") and "(" in line:
            name = line.split()[1].partition("(")[0]
            if name.isidentifier() and name.isupper():
                found.append(f"MKL {name}")
    return list(dict.fromkeys(found))
