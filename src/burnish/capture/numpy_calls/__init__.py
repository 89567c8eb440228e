"""NumPy on tensors' data: array calls that become torch calls of the graph."""
