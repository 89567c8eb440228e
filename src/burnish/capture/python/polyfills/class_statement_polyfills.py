"""Class polyfills: what a class statement does, in steps.

class Model(Base): ...        # the body fills a namespace; then the metaclass is called
"""

from __future__ import annotations

from ...interpreter.versions.behavior import BEHAVIOR

HAS_NOTE = BEHAVIOR.errors_of_set_name_have_notes


def run_body(body, namespace):
    """Call ``body`` with ``namespace`` as its local names. A trace interprets it."""
    exec(body.__code__, body.__globals__, namespace, closure=body.__closure__ or None)
    if isinstance(namespace, dict):  # which may make a value for a missing key
        return dict.get(namespace, "__classcell__")
    try:
        return namespace["__classcell__"]
    except KeyError:
        return None


def prepared(kind, namespace):
    """What ``__prepare__`` returned. A trace ends here if that is not a dictionary."""
    if not hasattr(type(namespace), "__getitem__"):
        raise TypeError(f"{kind.__name__}.__prepare__() must return a mapping, not {type(namespace).__name__}")
    return namespace


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


def build_class(body, name, original, bases, kind, has_hook, kwargs):
    namespace = prepared(kind, kind.__prepare__(name, bases, **kwargs)) if has_hook else {}
    cell = run_body(body, namespace)
    if bases is not original:
        namespace["__orig_bases__"] = original
    made = kind(name, bases, namespace, **kwargs)
    check_cell(cell, made)
    return made


def finish_class(cls, named, kwargs):
    """What ``type.__new__`` calls when the class is there."""
    for name, value in named:
        try:
            type(value).__set_name__(value, cls, name)
        except BaseException as error:
            explain_set_name(error, value, cls, name)
            raise
    if kwargs is not None:
        super(cls, cls).__init_subclass__(**kwargs)
    return cls


def explain_set_name(error, value, cls, name):
    text = f"Error calling __set_name__ on '{type(value).__name__}' instance {name!r} in '{cls.__name__}'"
    if not HAS_NOTE:
        raise RuntimeError(text) from error
    error.add_note(text)
