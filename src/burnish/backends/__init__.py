"""Backends: functions that compile a captured graph into a callable.

They separate capture from the compiler, which do not import each other: capture looks up a backend by name and passes
it a graph.

    registry.lookup("eager")(gm, [x, y])(x, y)
"""
