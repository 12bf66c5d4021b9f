"""A runtime twin of the chain for the H200: hello_chain.cu, compiled by nvcc."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from hello_two_cuts import Placed

from tilefoundry.runtime import runtime_func, runtime_module


def compiled() -> ctypes.CDLL:
    source = Path(__file__).with_name("hello_chain.cu")
    library = Path(tempfile.mkdtemp()) / "hello_chain.so"
    flags = ["-O3", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run(["nvcc", *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


LIBRARY = compiled()
LIBRARY.launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@runtime_module(Placed)
class InlineTwin:
    @runtime_func
    def chain(self, x):
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        error = LIBRARY.launch(x.data_ptr(), out.data_ptr(), stream)
        if error:
            raise RuntimeError(f"the launch failed with CUDA error {error}")
        return out
