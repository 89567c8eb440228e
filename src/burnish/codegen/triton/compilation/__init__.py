"""Compilation of printed kernels by Triton: in worker processes, cached on disk."""
