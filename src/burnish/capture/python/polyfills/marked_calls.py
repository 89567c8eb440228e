"""Functions that are marked in compiled code, as the functions that their decorators return."""


def nonstrict(function):
    """``torch.compiler.nonstrict_trace(function)``."""

    def traced(*args, **kwargs):
        return call_marked(function, args, kwargs)

    return traced


def call_marked(function, args, kwargs):
    """While tracing, `marks_of_dynamo.call_nonstrict` takes its place."""
    return function(*args, **kwargs)
