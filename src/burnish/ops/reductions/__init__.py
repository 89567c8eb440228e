"""Operators along dimensions: reductions, softmax, norms, cumulative sums, pooling windows."""
