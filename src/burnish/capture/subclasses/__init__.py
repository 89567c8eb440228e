"""Tensor subclasses: the rules of their classes are interpreted, so that graphs hold plain tensors."""
