"""Fusion: which values are computed in one nest of loops."""
