"""Torch's operations under a trace: calls and state, gradients, control flow, custom functions, optimizers."""
