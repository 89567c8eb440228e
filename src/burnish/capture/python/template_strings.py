"""Template strings (``t"..."``, from Python 3.14 on), which the program makes: immutable objects that show their parts.

    made = t"{x:>8} of {table}"      # a Template, which holds two Interpolations and the texts around them

They may hold anything, live numbers and iterators of ours included, and are made of their parts again.
"""

from __future__ import annotations

from typing import Any

try:
    from string.templatelib import Interpolation, Template  # type: ignore[import-not-found]
except ImportError:
    KINDS: tuple[type, ...] = ()
else:
    KINDS = Template, Interpolation
ITERATED = frozenset(KINDS[:1])


def build(to: Any, value: Any) -> str:
    maker, parts = value.__reduce__()
    return to.name(value, to.call(maker, to.items(parts)))
