"""Candidates that are our own kernels: their tiling and their weight packing."""
