"""The bytecode interpreter: executes CPython bytecode on real objects, with frames as plain data."""
