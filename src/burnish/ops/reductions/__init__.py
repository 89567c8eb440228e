"""Operators over rows: reductions, softmax, norms, running sums, pooling windows."""
