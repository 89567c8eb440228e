"""Segments: how a trace is closed so that it can run again, and how a run continues from one segment to the next."""
