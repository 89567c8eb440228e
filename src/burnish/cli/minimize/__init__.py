"""The smallest graph of a program with which compiled code fails, as a script."""
