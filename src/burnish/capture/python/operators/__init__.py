"""Operators while tracing: arithmetic, comparison, truth, membership, subscripts and iteration."""
