"""Segments: how a trace is closed so that it can run again, and how a run gets from one to the next."""
