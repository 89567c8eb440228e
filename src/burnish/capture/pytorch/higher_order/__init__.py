"""Functions that take functions: transforms and operators, as parts of a graph that any backend can run."""
