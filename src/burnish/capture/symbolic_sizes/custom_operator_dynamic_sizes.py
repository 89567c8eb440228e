"""Finds which result sizes of a library operator depend on data, by running its fake implementation twice.

    ctx = torch.library.get_ctx()
    return x.new_empty(ctx.new_dynamic_size(), 3)       dimension 0 of the result

The function runs twice, with other numbers for such sizes. A dimension that differs depends on data.
"""

from __future__ import annotations

from typing import Any

import torch

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import OpOverload, operator_entries, set_ctx_getter, tree_map
from ...runtime.argument_trees import tensors_in
from ..pytorch.torch_call_roles import without_data

FIRST_NUMBERS = (1009, 2003)


class Context:
    """In place of the one that torch's own compiler gives to such a function."""

    def __init__(self, number: int):
        self.number = number

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        self.number += 1
        return self.number

    create_unbacked_symint = new_dynamic_size


def sizes_from_data(operator: Any, args: tuple, kwargs: dict, result: Any) -> list[tuple[int, ...]] | None:
    """For each tensor of the result, the dimensions with sizes that depend on data. None if that is unknown."""
    operator = getattr(operator, "default", operator)
    entry = operator_entries.get(operator._schema.name) if isinstance(operator, OpOverload) else None
    if entry is None or entry.fake_impl.kernel is None or set_ctx_getter is None:
        return None
    given = tree_map(without_data, args), tree_map(without_data, kwargs)
    shapes = []
    for number in FIRST_NUMBERS:
        context = Context(number)
        try:
            with set_ctx_getter(lambda context=context: context), torch.no_grad():
                made = entry.fake_impl.kernel(*given[0], **given[1])
        except Exception as error:
            reraise_from_outside(error)
            return None
        shapes.append([tuple(x.shape) for x in tensors_in((made,))])
    found = [tuple(x.shape) for x in tensors_in((result,))]
    if not len(found) == len(shapes[0]) == len(shapes[1]):
        return None
    return dims_from_data(found, *shapes)


def dims_from_data(found: list[tuple], first: list[tuple], second: list[tuple]) -> list[tuple[int, ...]] | None:
    dims = []
    for shape, one, other in zip(found, first, second, strict=True):
        if not len(shape) == len(one) == len(other):
            return None
        differing = tuple(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        if any(shape[k] != one[k] for k in range(len(shape)) if k not in differing):
            return None
        dims.append(differing)
    return dims
