"""Rewrites of loop nests before printing: coalesced, generalized over sizes, listed as text."""
