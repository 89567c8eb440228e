"""Rewrites of loop nests before printing: coalescing, generalization over sizes, listing as text."""
