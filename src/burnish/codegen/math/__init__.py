"""Transcendental functions, Philox random numbers and the bits of floats as expressions of machine operations.

`expand_operations.expand` writes an expression in them; each other module holds one family of functions.
"""
