"""Torch's scans and loops: ``torch.associative_scan`` is interpreted, where torch would pass its function to Dynamo.

    associative_scan(combine, (a, b), dim=2)      Mamba's states, of all positions

Neighbouring elements are combined in pairs, the half as many results are scanned, and the elements in between follow
from those. This is torch's own order, so the rounding is the same. Only functions of single numbers are handled
(``combine_mode="pointwise"``); others go to ``torch.vmap`` and end the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from .cond import is_plain_tree


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
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


def handle(m: Any, args: tuple, kwargs: dict) -> Any:
    if is_plain(*args, **kwargs):
        return m.call(associative_scan, args, kwargs)
    return MISSING


def is_plain(
    combine_fn: Any = None,
    xs: Any = None,
    dim: Any = None,
    reverse: Any = False,
    combine_mode: Any = "pointwise",
    *others: Any,
    **more: Any,
) -> bool:
    """Whether torch would accept the arguments, too: otherwise torch must raise its own error."""
    leaves = pytree.tree_leaves(xs)
    return (
        callable(combine_fn)
        and is_plain_tree(xs)
        and type(dim) is int
        and type(reverse) is bool
        and combine_mode == "pointwise"
        and bool(leaves)
        and not others
        and not more
        and all(type(x) in TENSOR_TYPES and x.layout is torch.strided and -x.ndim <= dim < x.ndim for x in leaves)
    )


HANDLERS: dict[Any, Callable] = {}
_scan = getattr(torch._higher_order_ops, "associative_scan", None)
_scan = getattr(_scan, "associative_scan", _scan)  # the function, or the module that contains it
if _scan is not None:
    HANDLERS[_scan] = handle
