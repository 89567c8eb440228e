"""Capture: turns a Python function into guarded segments. See docs/dev/capture.md for the whole picture.

engine            runs captured segments, traces what has not been captured; heap: objects from outside, and the
                  reads and writes of them; graph_recorder: torch calls, made into a graph
interpreter       the bytecode interpreter behind the tracer: bytecode, frames, opcodes
python, pytorch   how Python's operations, and torch's, are traced
numbers           live scalars: Python numbers that may differ in the next call
symbolic_sizes    sizes that may differ in the next call
guards            what must be the same
segments          a finished trace, made so that it runs again
breaks            every reason to end a segment
"""
