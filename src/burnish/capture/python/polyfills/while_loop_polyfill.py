"""Torch's loops with Python numbers among what they carry: each step is part of the graph.

while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))         three products
"""

from __future__ import annotations

import torch

MOST_STEPS = 256


def leave_to_torch(why):  # type: ignore[no-untyped-def]
    """Has a handler: the trace ends before the loop."""


def while_loop(go_on, body, carried):  # type: ignore[no-untyped-def]
    steps, following = 0, go_on(*carried)
    result = tuple([x.clone() if isinstance(x, torch.Tensor) else x for x in carried])
    while True:
        if type(following) is not bool:
            leave_to_torch("whose condition is no bool")
        if not following:
            return result
        if steps == MOST_STEPS:
            leave_to_torch(f"of more than {MOST_STEPS} steps")
        result, steps = body(*carried), steps + 1
        if type(result) is not tuple or not all([isinstance(x, (int, torch.Tensor)) for x in result]):
            leave_to_torch("whose step returns no tuple of tensors and numbers")
        if len(result) != len(carried):
            leave_to_torch("whose step returns another number of values than it takes")
        carried = result
        following = go_on(*carried)
