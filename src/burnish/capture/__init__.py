"""Capture: turns a Python function into guarded segments. See docs/dev/capture.md for the whole picture.

engine            runs captured segments and traces the rest; records torch calls and effects on outside objects
interpreter       the bytecode interpreter behind the tracer: frames, opcodes
python, pytorch   how Python's operations, and torch's, are traced
numbers           live scalars: numbers that may differ in the next call
symbolic_sizes    sizes that may differ in the next call
guards            what must be the same
segments          a finished trace, made so that it runs again
breaks            every reason to end a segment
"""
