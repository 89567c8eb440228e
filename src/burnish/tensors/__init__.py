"""Tensor metadata: types, dtype names, strides, type promotion, symbolic sizes, and views as index maps."""
