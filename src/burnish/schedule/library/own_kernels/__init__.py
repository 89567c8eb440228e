"""Candidates that are kernels of our own: how their work is tiled and their weights packed."""
