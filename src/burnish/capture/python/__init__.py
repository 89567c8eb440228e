"""Python's operations under a trace: attributes, operators, calls, builtins, containers, text."""
