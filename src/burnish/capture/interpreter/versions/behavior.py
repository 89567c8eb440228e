"""What differs between CPython versions besides their instructions: one record per version.

The memory layout of Python's objects, which native guards read, is in ``runtime/state_watch/native_watch.py``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Behavior:
    pop_top_follows_end_for: bool
    """A loop ends with two instructions: the first drops the value, the second the iterator."""

    end_send_drops_receiver: bool
    """Otherwise the value of ``yield from`` takes the receiver's place on the stack."""

    locals_returns_new_dictionary: bool
    """Otherwise there is one dictionary per frame, updated by each ``locals()``."""

    classmethod_wraps_descriptors: bool
    """Whether ``classmethod(property(...))`` and the like call the ``__get__`` of what they wrap."""

    descending_run_holds_equal_keys: bool
    """How ``list.sort`` finds the run that a list starts with."""

    close_returns_value: bool
    """Whether ``generator.close()`` returns what the generator returns."""

    throw_of_class_and_value_warns: bool
    """Whether ``generator.throw(kind, value)`` is deprecated."""

    cause_of_class_is_checked: bool
    """Whether ``raise error from Kind`` is an error if calling ``Kind`` makes no exception."""

    copies_of_itertools_warn: bool
    """Whether copies of iterators of ``itertools`` are deprecated."""

    has_detailed_errors: bool
    """Whether errors say which method of a context manager is missing, and how many values were not unpacked."""

    annotations_are_computed: bool
    """Whether annotations are a function of the program, which Python calls when they are first read."""

    index_error_shows_item: bool
    """Whether the error about an item that is not in a list or a deque shows it."""

    iterators_of_itertools_are_copied: bool
    """Whether iterators of ``itertools`` show what they were made of (``__reduce__``)."""


VERSIONS = {
    (3, 11): Behavior(False, False, False, True, False, False, False, False, False, False, False, True, True),
    (3, 12): Behavior(False, True, False, True, False, False, True, False, True, False, False, True, True),
    (3, 13): Behavior(True, True, True, False, True, True, True, True, True, False, False, True, True),
    (3, 14): Behavior(True, True, True, False, True, True, True, True, False, True, True, False, False),
}


def why_not_interpreted() -> str | None:
    """A sentence if this Python has other instructions than the versions above."""
    if sys.version_info[:2] in VERSIONS:
        return None
    oldest, newest, here = (".".join(map(str, v)) for v in (min(VERSIONS), max(VERSIONS), sys.version_info[:2]))
    return f"this is Python {here}, and capture knows the bytecode of Python {oldest} to {newest}."


VERSION = min(max(sys.version_info[:2], min(VERSIONS)), max(VERSIONS))
BEHAVIOR = VERSIONS[VERSION]
INSTRUCTIONS = "cpython_{}{}".format(*VERSION)
"""The module beside this one with the instructions that differ from those of the version before."""
