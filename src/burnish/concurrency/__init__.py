"""Threads, forks and imports: values made once per process, locks that survive a fork, the garbage collector, builtins
that programs do not replace."""

from . import own_builtins  # noqa: F401  # before the modules that get them
