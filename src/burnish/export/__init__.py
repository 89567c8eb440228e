"""Export: one standalone graph of a whole function or module, and the file it is saved in."""
