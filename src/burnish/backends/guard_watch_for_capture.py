"""Gives capture access to the compiler's native guard watches, because capture does not import the compiler."""

from ..compiler.provide_guard_watch import is_at_hand, new_watch

__all__ = ["is_at_hand", "new_watch"]
