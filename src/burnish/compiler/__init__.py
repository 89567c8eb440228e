"""From a captured graph to a program: the driver, the program cache, adapters around a compiled graph."""
