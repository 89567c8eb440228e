"""Capture: from a Python function to guarded segments. See docs/capture.md for the whole picture."""
