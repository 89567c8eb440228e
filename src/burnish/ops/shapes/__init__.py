"""Operators that move or make elements: views, joining, padding, creation."""
