"""Text polyfills: Python versions of ``format``, ``print`` and the ``repr`` of containers.

    repr([config])        # config.__repr__() is the user's

They serve objects whose text is made by Python code.
"""

from __future__ import annotations

import warnings


def convert_and_format(convert, value, spec):
    return format(convert(value), spec)


def list_text(items, opening, closing):
    parts = [repr(value) for value in items]
    return opening + ", ".join(parts) + closing


def tuple_text(items):
    parts = [repr(value) for value in items]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def dict_text(table):
    return "{" + ", ".join([f"{key!r}: {value!r}" for key, value in table.items()]) + "}"


def print_texts(args, options):
    """print() of objects whose text is computed by Python code."""
    print(*[str(value) for value in args], **options)


def show(text, thing):
    return text(thing)


def error_text(name, args):
    """``BaseException.__repr__``, and without a name ``BaseException.__str__`` of several arguments."""
    return f"{name}({args[0]!r})" if name and len(args) == 1 else name + repr(args)


def enter_assertion_of_warning(context):
    """The rest of what ``assertWarns`` of ``unittest`` does when its block is entered."""
    context.warnings_manager = warnings.catch_warnings(record=True)
    context.warnings = context.warnings_manager.__enter__()
    warnings.simplefilter("always", context.expected)
    return context
