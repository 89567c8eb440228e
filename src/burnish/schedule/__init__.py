"""From a graph of operators to fused loops, library calls and a memory plan."""
