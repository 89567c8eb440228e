"""Operators that move or create elements: views, concatenation, padding, creation."""
