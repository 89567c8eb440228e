"""Losses, element by element."""
