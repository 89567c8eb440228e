"""From a graph of operators to loops, library calls and a memory plan."""
