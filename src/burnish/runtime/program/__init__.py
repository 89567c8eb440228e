"""A compiled graph as it runs: driver, kernels, arena, autograd function."""
