"""Adapters around a compiled graph that make its calls behave as in eager."""
