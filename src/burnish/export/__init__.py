"""Export: one graph of a whole function or module, on its own, and the file it is saved in."""
