"""Buffer reuse for large values: several of them share one output's buffer in turn.

The buffers of consecutive native functions are allocated before the first function and freed after the last. So without
this pass all values of such a sequence are in memory at the same time:

    made in one call    a in steps 0 to 2, 3 MB     b in 2 to 4, 4 MB     c in 5 to 6, 4 MB     out from 7 on, 4 MB
    without             15 MB
    with                b and c share the buffer of out                                          7 MB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.graph import Value
from ...tensors.fit_size_formulas import ALIGNMENT
from .plan_arena import Span, lowest

MOST = 200
"""Only this many of a call's values, the largest, are considered: each is compared with all others."""

SMALL, MUCH_LARGER = 1 << 19, 8
"""A smaller value is not put into a buffer that is so many times larger: there is nothing to gain, and a kernel's
pointer would belong to the large buffer."""


def reuse_output_buffers(
    calls: Sequence[Mapping[Value, Span]], outputs: Sequence[Mapping[Value, Span]]
) -> dict[Value, tuple[Value, int]]:
    """The values that share another's buffer, and their byte offset in it. `calls` has the values that each call needs
    only while it runs, in bytes. `outputs` has the values that outlive it, from the step that writes them."""
    found: dict[Value, tuple[Value, int]] = {}
    for needed, left in zip(calls, outputs, strict=True):
        taken = {host: [(span, 0)] for host, span in sorted(left.items(), key=lambda entry: entry[1].size)}
        for value, span in sorted(needed.items(), key=lambda entry: -entry[1].size)[:MOST]:
            padded = replace(span, size=-(-span.size // ALIGNMENT) * ALIGNMENT)
            for host, others in taken.items():
                at, room = lowest(span, others), others[0][0].size
                if at + span.size <= room and (span.size >= SMALL or room <= MUCH_LARGER * span.size):
                    found[value] = host, at
                    others.append((padded, at))
                    break
            else:
                taken[value] = [(span, 0)]
    return found
