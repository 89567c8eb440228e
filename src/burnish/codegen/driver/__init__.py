"""Generated drivers of plans: Python source that calls kernels and operators in order."""
