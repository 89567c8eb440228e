"""Graph rewrites before library calls are chosen: constant folding, error checks, attention, recurrent layers."""
