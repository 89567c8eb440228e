"""Graph passes: `Graph -> Graph`, one in each file. `lower.pipeline` lists them in order."""
