"""TIR to CUDA C++ with inline PTX."""
