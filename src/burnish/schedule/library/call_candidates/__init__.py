"""Candidates of library calls: one file per kind of call, one per library."""
