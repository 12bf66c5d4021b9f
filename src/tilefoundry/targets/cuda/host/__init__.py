"""Compiling, loading and launching CUDA kernels."""
