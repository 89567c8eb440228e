"""Capture: from a Python function to guarded segments. See docs/dev/capture.md for the whole picture.

engine -> tracer     runs what has been captured, traces what has not
interpreter          the machine that the tracer is: bytecode, frames, opcodes
python, pytorch      what Python's operations, and torch's, are while tracing
heap, recorder       what was met: objects from outside, read and written; torch calls, made into a graph
numbers, sizes       what may be another one in the next call
guards               what must be the same
segments             a trace closed, so that it runs again
breaks               every reason to end one
"""
