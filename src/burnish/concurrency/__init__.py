"""Threads, forks and imports: values made once per process, locks that survive a fork, modules already loaded."""
