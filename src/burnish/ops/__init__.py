"""The operators: one record each, by family, and the scalar language their element-wise rules are written in."""
