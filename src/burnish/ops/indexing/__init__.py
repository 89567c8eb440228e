"""Indexing operators: gather and scatter at index tensors."""
