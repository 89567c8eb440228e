"""The driver of a plan: Python text that calls kernels and operators in order."""
