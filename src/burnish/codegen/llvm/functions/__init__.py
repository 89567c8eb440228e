"""Native functions that are not loop nests: matmul, attention, recurrent layers, guards."""
