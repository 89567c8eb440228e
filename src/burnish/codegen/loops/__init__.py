"""Loop nests before a printer sees them: simplified, generalized over sizes, listed."""
