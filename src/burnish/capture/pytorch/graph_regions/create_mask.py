"""`create_mask` while tracing: the mask of all indices from one call of its function, on indices that broadcast.

    create_mask(lambda b, h, q, k: q >= k, 1, 1, 512, 512)

    ge = torch.arange(512).view(1, 1, 512, 1) >= torch.arange(512).view(1, 1, 1, 512)

Torch maps the function with `torch.vmap`. `create_block_mask` is interpreted around it: its sums over the blocks of the
mask are computed without the mask in memory.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from ....concurrency.outside_errors import reraise_from_outside
from ....errors import InternalError
from ... import breaks
from ...interpreter import argument_binding
from ...interpreter.frames import MISSING
from ...interpreter.program_or_tracer_errors import ask_torch
from ...numbers.live_scalars import plain_of
from ...python.trace_rollback import ask_region
from .graph_region import GraphRegion, drawing_from
from .index_functions import IndexFunctionRegion


def create_mask(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    try:
        values = argument_binding.bind(function, args, kwargs)
    except TypeError:
        return MISSING
    mod, *given, device = values[:6]
    given = [1 if size is None else size for size in given[:2]] + given[2:]
    sizes = [*map(plain_of, given)]
    if not callable(mod) or not all(type(size) is int and size > 0 for size in sizes):
        return MISSING
    if m.region is not None and not isinstance(m.region, GraphRegion):
        m.region.refuse("create_mask")
    namespace = function.__globals__
    try:
        kind = ask_torch(namespace["_get_mod_type"], mod)
    except InternalError:
        raise
    except Exception as error:
        reraise_from_outside(error)
        return m.stop(breaks.FOREIGN_COMPILED, f"create_mask: {type(error).__name__}: {error}")
    place = torch.device(device or torch.accelerator.current_accelerator() or "cpu")
    is_score = kind is namespace["_ModificationType"].SCORE_MOD
    m.answer = None
    m.region = MaskCall(m, sizes, place, is_score, m.frame.code.co.co_name == "create_block_mask")
    return m.call(mask_of, (mod, is_score, *given, place), {})


def ordered_to_dense(m: Any, function: FunctionType, args: tuple, kwargs: dict) -> Any:
    """Torch writes the blocks of a mask into a table under `torch.vmap`."""
    return m.call(dense_of_ordered, args, kwargs)


def dense_of_ordered(num_blocks_in_row, col_indices, num_cols=None):  # type: ignore[no-untyped-def]
    if num_cols is None:
        num_cols = col_indices.shape[-1]
    entries = torch.arange(col_indices.shape[-1], dtype=torch.int, device=num_blocks_in_row.device)
    columns = torch.where(entries < num_blocks_in_row.unsqueeze(-1), col_indices, num_cols)
    dense = col_indices.new_zeros((*col_indices.shape[:-1], num_cols + 1), dtype=torch.int32)
    return dense.scatter(-1, columns.long(), 1)[..., :num_cols].contiguous()


def mask_of(mod, is_score, batch, heads, queries, keys, device):  # type: ignore[no-untyped-def]
    """The function that is interpreted for the call."""
    try:
        ask_region("end", mod(*ask_region("begin")))
        b = torch.arange(batch, device=device).view(batch, 1, 1, 1)
        h = torch.arange(heads, device=device).view(1, heads, 1, 1)
        q = torch.arange(queries, device=device).view(1, 1, queries, 1)
        k = torch.arange(keys, device=device).view(1, 1, 1, keys)
        if is_score:
            scores = mod(torch.zeros(batch, heads, queries, keys, device=device), b, h, q, k)
            mask = torch.where(torch.isneginf(scores), False, True)
        else:
            mask = mod(b, h, q, k).expand(batch, heads, queries, keys)
        ask_region("finish")
    except BaseException as error:
        ask_region("left_by_error", error)
        raise
    return mask


class MaskCall(GraphRegion):
    """A call of `create_mask` that is being traced."""

    def __init__(self, m: Any, sizes: list[int], device: torch.device, is_score: bool, is_part: bool):
        super().__init__(m, "create_mask", drawing_from([torch.empty(0, device=device)]))
        self.sizes, self.device, self.is_score, self.is_part = sizes, device, is_score, is_part
        self.function: Any = None

    def begin(self) -> tuple[torch.Tensor, ...]:
        kind = torch.get_default_dtype() if self.is_score else None
        self.function = self.m.region = IndexFunctionRegion(
            self.m, "the function", tuple(self.sizes), self.device, kind
        )
        return self.function.given

    def finish(self) -> None:
        if not self.is_part and not self.function.is_laid_out_as_mapped:
            self.refuse("a mask with the memory layout that torch.vmap gives it")
        self.check_end()
        self.leave()


BY_NAME = {"create_mask": create_mask, "_ordered_to_dense": ordered_to_dense}
"""Functions of torch's module."""
