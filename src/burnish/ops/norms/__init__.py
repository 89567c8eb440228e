"""Normalization operators: shape rules, decompositions and gradients of each in one file."""
