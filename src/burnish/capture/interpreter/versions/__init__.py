"""The changes of each CPython version to the instruction set: one table per version."""
