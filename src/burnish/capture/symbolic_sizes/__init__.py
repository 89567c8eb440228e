"""Open sizes: dimensions that may be others in the next call."""
