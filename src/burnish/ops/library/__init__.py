"""Shape rules of operators that are library calls."""
