"""Events that are emitted inside a block, as a list that a test can read during and after it.

with recorded("breaks", datum="text") as texts:
    compiled(x)
assert texts == []
"""

import contextlib

from burnish import events


@contextlib.contextmanager
def recorded(*kinds, datum=None):
    """The events of these kinds, or one datum of each."""
    found = []
    stop = events.subscribe(lambda event: found.append(event if datum is None else event.data[datum]), kinds)
    try:
        yield found
    finally:
        stop()
