"""What differs between CPython versions besides their instructions: one record per version.

The memory layout of Python's objects, which native guards read, is in ``runtime/state_watch/native_watch.py``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from ....concurrency.thread_locks import has_global_lock


@dataclass(frozen=True)
class Behavior:
    pop_top_follows_end_for: bool = False
    """A loop ends with two instructions: the first drops the value, the second the iterator."""

    end_send_drops_receiver: bool = False
    """Otherwise the value of ``yield from`` takes the receiver's place on the stack."""

    locals_returns_new_dictionary: bool = False
    """Otherwise there is one dictionary per frame, updated by each ``locals()``."""

    classmethod_wraps_descriptors: bool = False
    """Whether ``classmethod(property(...))`` and the like call the ``__get__`` of what they wrap."""

    descending_run_holds_equal_keys: bool = False
    """How ``list.sort`` finds the run that a list starts with."""

    close_returns_value: bool = False
    """Whether ``generator.close()`` returns what the generator returns."""

    throw_of_class_and_value_warns: bool = False
    """Whether ``generator.throw(kind, value)`` is deprecated."""

    cause_of_class_is_checked: bool = False
    """Whether ``raise error from Kind`` is an error if calling ``Kind`` makes no exception."""

    copies_of_itertools_warn: bool = False
    """Whether copies of iterators of ``itertools`` are deprecated."""

    has_detailed_errors: bool = False
    """Whether errors say which method of a context manager is missing, and how many values were not unpacked."""

    annotations_are_computed: bool = False
    """Whether annotations are a function of the program, which Python calls when they are first read."""

    index_error_shows_item: bool = False
    """Whether the error about an item that is not in a list or a deque shows it."""

    iterators_of_itertools_are_copied: bool = False
    """Whether iterators of ``itertools`` show what they were made of (``__reduce__``)."""

    sum_corrects_floats: bool = False
    """Whether ``sum`` adds floats with a correction, and not as ``+`` does."""

    errors_of_set_name_have_notes: bool = False
    """Whether an error of ``__set_name__`` is raised with a note. Otherwise it is the cause of another one."""

    reversed_forgets_steps_inside: bool = False
    """Whether a step of ``reversed(sequence)`` starts where it began if the sequence advances it."""

    truth_of_not_implemented_is_error: bool = False

    clocks_without_zone_warn: bool = False
    """Whether ``datetime.utcnow()`` and ``datetime.utcfromtimestamp()`` are deprecated."""


PYTHON_3_11 = Behavior(
    classmethod_wraps_descriptors=True, index_error_shows_item=True, iterators_of_itertools_are_copied=True
)
PYTHON_3_12 = replace(
    PYTHON_3_11,
    clocks_without_zone_warn=True,
    copies_of_itertools_warn=True,
    end_send_drops_receiver=True,
    errors_of_set_name_have_notes=True,
    sum_corrects_floats=True,
    throw_of_class_and_value_warns=True,
)
PYTHON_3_13 = replace(
    PYTHON_3_12,
    cause_of_class_is_checked=True,
    classmethod_wraps_descriptors=False,
    close_returns_value=True,
    descending_run_holds_equal_keys=True,
    locals_returns_new_dictionary=True,
    pop_top_follows_end_for=True,
)
PYTHON_3_14 = replace(
    PYTHON_3_13,
    annotations_are_computed=True,
    copies_of_itertools_warn=False,
    has_detailed_errors=True,
    index_error_shows_item=False,
    iterators_of_itertools_are_copied=False,
    reversed_forgets_steps_inside=True,
    truth_of_not_implemented_is_error=True,
)
VERSIONS = {(3, 11): PYTHON_3_11, (3, 12): PYTHON_3_12, (3, 13): PYTHON_3_13, (3, 14): PYTHON_3_14}


def why_not_interpreted() -> str | None:
    """A sentence if this Python has other instructions than the versions above, or other objects in memory."""
    if not has_global_lock:  # objects are laid out otherwise, and threads change them while we look
        return "this Python was built without the global interpreter lock."
    if sys.version_info[:2] in VERSIONS:
        return None
    oldest, newest, here = (".".join(map(str, v)) for v in (min(VERSIONS), max(VERSIONS), sys.version_info[:2]))
    return f"this is Python {here}, and capture knows the bytecode of Python {oldest} to {newest}."


VERSION = min(max(sys.version_info[:2], min(VERSIONS)), max(VERSIONS))
BEHAVIOR = VERSIONS[VERSION]
INSTRUCTIONS = "cpython_{}{}".format(*VERSION)
"""The module beside this one with the instructions that differ from those of the version before."""
