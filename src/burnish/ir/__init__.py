"""The graph of operators that the compiler works on: values, nodes, printing, checking."""
