"""Torch's scans, loops and switches as code that becomes part of the graph.

while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))         three products
associative_scan(combine, (a, b), dim=2)                                    Mamba's states, of all positions
switch(index, (f, g, h), (x,))                          cond(index <= 0, f, cond(index <= 1, g, h))
"""

from __future__ import annotations

import torch

from ....foundation.torch_private import pytree
from ...pytorch.higher_order.loop_operators import leave_to_torch

MOST_STEPS = 256


def while_loop(go_on, body, carried):  # type: ignore[no-untyped-def]
    steps, following = 0, go_on(*carried)
    result = tuple([x.clone() if isinstance(x, torch.Tensor) else x for x in carried])
    while True:
        if type(following) is not bool:
            leave_to_torch("a loop with a Python number, whose condition is not a bool")
        if not following:
            return result
        if steps == MOST_STEPS:
            leave_to_torch(f"a loop with a Python number, of more than {MOST_STEPS} steps")
        result, steps = body(*carried), steps + 1
        if type(result) is not tuple or not all([isinstance(x, (int, torch.Tensor)) for x in result]):
            leave_to_torch("a loop with a Python number, whose step returns no tuple of tensors and numbers")
        if len(result) != len(carried):
            leave_to_torch("a loop with a Python number, whose step returns another number of values than it takes")
        carried = result
        following = go_on(*carried)


def switch(index, branches, operands=()):  # type: ignore[no-untyped-def]
    """As in torch, an index out of range is that of the first or the last branch."""
    if type(branches) not in (tuple, list) or not branches or not all([callable(branch) for branch in branches]):
        leave_to_torch("branches that are not a list of functions")
    return switch_from(0, index, branches, operands)


def switch_from(position, index, branches, operands):  # type: ignore[no-untyped-def]
    if position + 1 == len(branches):
        return branches[position](*operands)
    others = lambda *given: switch_from(position + 1, index, branches, given)  # noqa: E731
    return torch.cond(index <= position, branches[position], others, operands)


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):  # type: ignore[no-untyped-def]
    """Neighbouring elements are combined in pairs, the half as many results are scanned, and the elements in between
    follow from those. This is torch's own order, so the rounding is the same."""
    leaves, spec = pytree.tree_flatten(xs)
    dim = dim % leaves[0].ndim

    def combine(left, right):
        return pytree.tree_leaves(combine_fn(pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec)))

    found = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        found = [x.flip(0) for x in found]
    found = scanned(combine, found)
    if reverse:
        found = [x.flip(0) for x in found]
    return pytree.tree_unflatten([x.movedim(0, dim) for x in found], spec)


def scanned(combine, xs):
    """Scan along the first dimension."""
    count = xs[0].shape[0]
    if count < 2:
        return xs
    odd = scanned(combine, combine([x[:-1:2] for x in xs], [x[1::2] for x in xs]))
    even = [x[:1] for x in xs]
    if count > 2:
        between = combine(odd if count % 2 else [x[:-1] for x in odd], [x[2::2] for x in xs])
        even = [torch.cat([first, rest]) for first, rest in zip(even, between, strict=True)]
    pairs = [torch.stack([e[: count // 2], o], 1).flatten(0, 1) for e, o in zip(even, odd, strict=True)]
    if count % 2:
        return [torch.cat([pair, e[-1:]]) for pair, e in zip(pairs, even, strict=True)]
    return pairs
