"""The memory plan: liveness, buffer reuse, in-place writes, and the arena."""
