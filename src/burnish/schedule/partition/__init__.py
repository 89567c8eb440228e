"""Divides the graph: forward and backward, saved values, folded constants, loops or library calls."""
