"""The tracing engine: programs and their segments, the tracer, the graph recorder, the heap of objects."""
