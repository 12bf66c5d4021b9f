"""NVIDIA GPUs programmed in CUDA."""
