"""The native code that watches state for guards, for capture, which does not know the compiler."""

from ..compiler.guard_watch_function import is_at_hand, new_watch

__all__ = ["is_at_hand", "new_watch"]
