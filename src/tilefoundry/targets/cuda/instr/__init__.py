"""CUDA instructions, one file each: contract, meaning, register order."""
