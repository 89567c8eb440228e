"""Polyfills: Python versions of what C code does with the user's objects.

C functions that call back into Python (``sorted(key=)``, ``a + b`` with ``__radd__``, ``type.__call__``) would run user
code out of the interpreter's sight. Where an operand has Python methods the call goes to one of these instead, which
the interpreter runs like any user function. They use only what the interpreter handles natively.
"""
