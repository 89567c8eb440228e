"""Fusion: loops, gathers, scatters, prologues and epilogues, and the splits that make them possible."""
