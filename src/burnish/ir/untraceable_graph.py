"""The exceptions that say why a graph is not compiled. Importing this file does not import the compiler."""


class Untraceable(Exception):
    """The graph contains something that cannot be compiled, so it runs in eager; the message says what."""

    call: int | None = None
    """The position among the graph's nodes of the only call that cannot be compiled, as far as known."""


class NumberLost(Untraceable):
    """A live scalar became part of a constant in the graph, though its value may differ in the next call."""
