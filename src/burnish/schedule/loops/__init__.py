"""The loop IR: expressions, kernels, and their parser."""
