"""Buffer reuse for large values: several of them take turns in the memory of one output.

What native functions that follow one another need is made before the first of them and let go after the last, so
without this the values of one such call are all there at the same time:

    made in one call    a in steps 0 to 2, 3 MB     b in 2 to 4, 4 MB     c in 5 to 6, 4 MB     out from 7 on, 4 MB
    without             15 MB
    with                b and c lie in out                                                       7 MB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.graph import Value
from .plan_arena import Span, lowest

MOST = 200
"""Of so many values of one call the largest are looked at: each is compared with all others."""


def lodge(
    calls: Sequence[Mapping[Value, Span]], outputs: Sequence[Mapping[Value, Span]]
) -> dict[Value, tuple[Value, int]]:
    """Which values lie in which others, and how many bytes behind their beginning. `calls` has what each call needs
    while it runs, and `outputs` what it leaves, from the step on that writes it."""
    found: dict[Value, tuple[Value, int]] = {}
    for needed, left in zip(calls, outputs, strict=True):
        taken = {host: [(span, 0)] for host, span in sorted(left.items(), key=lambda entry: entry[1].size)}
        for value, span in sorted(needed.items(), key=lambda entry: -entry[1].size)[:MOST]:
            for host, others in taken.items():
                at = lowest(span, others)
                if at + span.size <= others[0][0].size:
                    found[value] = host, at
                    others.append((span, at))
                    break
            else:
                taken[value] = [(span, 0)]
    return found


__all__ = ["lodge"]
