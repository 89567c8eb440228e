"""Numbers under a trace: those that may differ on the next run, those of a graph, and constants like data."""
