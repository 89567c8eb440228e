"""The graph in parts: forward and backward, what is saved, what is folded, loops or library calls."""
