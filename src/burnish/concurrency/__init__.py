"""Threads, forks and imports: values made once per process, locks that survive a fork, the garbage collector."""
