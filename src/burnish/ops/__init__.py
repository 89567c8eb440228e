"""Operators: one record each, grouped by family, and the scalar IR of their element-wise rules."""
