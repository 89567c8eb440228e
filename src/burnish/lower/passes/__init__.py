"""Passes over the graph: `Graph -> Graph`, one a file. `lower.pipeline` lists them in order."""
