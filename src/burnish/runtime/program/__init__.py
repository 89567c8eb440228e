"""A compiled graph at run time: driver, kernels, arena, autograd function."""
