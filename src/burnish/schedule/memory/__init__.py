"""The memory plan: liveness, buffer reuse, in-place writes, the arena."""
