"""Parts of a graph that run eagerly, one operator at a time."""
