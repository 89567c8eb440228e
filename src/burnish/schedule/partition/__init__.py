"""Divides the graph: forward and backward, saved values, loops or library calls."""
