"""Names of torch calls that write to their first argument: ``add_``, ``__setitem__``, ``__ilshift__``.

Torch marks them by a trailing underscore. Python's special methods have two of their own, and some of them write.
"""

from __future__ import annotations

OPERATIONS = "add sub mul matmul div truediv floordiv mod pow lshift rshift and or xor"
SPECIAL = frozenset(["setitem", "__setitem__", *(f"__i{name}__" for name in OPERATIONS.split())])
"""Functions that write although their names do not have torch's form."""


def is_in_place_name(name: str) -> bool:
    return name in SPECIAL or name.endswith("_") and not name.endswith("__")
