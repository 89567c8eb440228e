"""Layouts: propagated through the graph, padded for the library, verified in the finished plan."""
