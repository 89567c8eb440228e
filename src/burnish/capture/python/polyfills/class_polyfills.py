"""Class polyfills: what a class statement does, in steps.

class Model(Base): ...        # the body fills a namespace; then the metaclass is called
"""

from __future__ import annotations


def run_body(body, namespace):
    """Call ``body`` with ``namespace`` as its local names. Only the tracer calls this."""
    raise AssertionError


def check_cell(cell, made):
    """The cell that methods read as ``__class__`` holds the class, unless a metaclass has lost it."""
    if cell is None or not isinstance(made, type):
        return
    try:
        held = cell.cell_contents
    except ValueError:
        text = (
            f"__class__ not set defining {made.__name__!r} as {made!r}. Was __classcell__ propagated to type.__new__?"
        )
        raise RuntimeError(text) from None
    if held is not made:
        raise TypeError(f"__class__ set to {held!r} defining {made.__name__!r} as {made!r}")


def build_class(body, name, original, bases, kind, namespace, kwargs):
    cell = run_body(body, namespace)
    if bases is not original:
        namespace["__orig_bases__"] = original
    made = kind(name, bases, namespace, **kwargs)
    check_cell(cell, made)
    return made
