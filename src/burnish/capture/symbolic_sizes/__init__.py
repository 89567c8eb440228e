"""Symbolic sizes: dimensions that may differ in the next call."""
