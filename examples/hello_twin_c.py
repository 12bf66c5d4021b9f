"""A runtime twin of the chain: hello_chain.c, compiled by the system's C compiler."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from hello_two_cuts import Placed

from tilefoundry.runtime import runtime_func, runtime_module


def compiled() -> ctypes.CDLL:
    source = Path(__file__).with_name("hello_chain.c")
    library = Path(tempfile.mkdtemp()) / "hello_chain.so"
    flags = ["-O3", "-march=native", "-fopenmp", "-ffp-contract=off", "-shared", "-fPIC"]
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


LIBRARY = compiled()
LIBRARY.chain.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
LIBRARY.chain.restype = None


@runtime_module(Placed)
class InlineTwin:
    @runtime_func
    def chain(self, x):
        out = torch.empty_like(x)
        LIBRARY.chain(x.data_ptr(), out.data_ptr(), x.numel())
        return out
