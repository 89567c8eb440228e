"""What each CPython version changes of the instruction set: one table per version."""
