"""Numbers under a trace: live scalars, numbers in the graph, and constant data."""
