"""Attribute access while tracing: CPython's lookup, step by step, with every step that reads state guarded.

``type(obj).__mro__`` decides first (data descriptors), then the instance dictionary, then the class again, then
``__getattr__``. Python code found on the way (properties, descriptors, ``__getattr__``) is interpreted.
"""
