"""The interpreter: CPython bytecode executed on real objects, and frames as plain data."""
