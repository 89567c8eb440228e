"""Operators that stay library calls: the types of their results."""
