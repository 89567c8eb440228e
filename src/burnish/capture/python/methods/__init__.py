"""Methods written in C while tracing: of containers, strings and other objects."""
