"""Compiles printed kernels with Triton: in worker processes, with a kernel cache on disk."""
