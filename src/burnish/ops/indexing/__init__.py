"""Operators that read or write at indices which are data."""
