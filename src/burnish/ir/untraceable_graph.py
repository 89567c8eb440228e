"""Why a graph is not compiled: known to whoever asks for it, without the compiler."""


class Untraceable(Exception):
    """The graph holds something that is run eagerly as it stands; the message says what."""


class NumberLost(Untraceable):
    """A number that may be another one in the next call became part of something that is fixed in the graph."""
