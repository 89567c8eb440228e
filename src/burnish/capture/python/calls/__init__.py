"""Calls while tracing: interpreted, run natively, recorded, or a graph break."""
