"""Flex attention in a graph: attention with modified scores, computed tile by tile.

    attend = FlexAttention(score, mask, scale, captured)
    out, log_total, top = attend(query, key, value, *captured)

The scores of one tile exist at a time, so memory grows with the length and not with its square. Tiles that the mask
leaves out are skipped. Results are those of `torch.ops.higher_order.flex_attention`: `log_total` and `top` in base 2.

    for each tile of queries
        for each tile of keys       weights = exp(score(q k') - top)        sum and product are rescaled when top grows

Backward computes the scores again from the saved `log_total`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from .cond import gradients_of
from .flex_tiles import EMPTY, FULL, KEYS, QUERIES, Compile, FlexTiles, Grid, Positions, starts_of

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class FlexAttention:
    """The target of a node. Its operands are query, key, value and what the graphs read."""

    stands_alone = True

    def __init__(self, tiles: FlexTiles):
        self.tiles = tiles
        self.__name__ = self.__qualname__ = "flex_attention"
        self.__module__ = __name__

    def in_subgraphs(self, compile_graph: Compile) -> FlexAttention:
        """The same with compiled work on tiles."""
        return FlexAttention(self.tiles.with_compiler(compile_graph))

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *captured: torch.Tensor) -> Results:
        if query.is_meta:
            return results_of(query, value)
        learns = (query, key, value, *captured[: self.tiles.of_score])
        if torch.is_grad_enabled() and any(x.requires_grad for x in learns):
            made: Results = Attended.apply(self.tiles, query, key, value, *captured)
            return made
        with torch.no_grad():
            return attend(self.tiles, query, key, value, captured)


def results_of(query: torch.Tensor, value: torch.Tensor) -> Results:
    """Empty results: a compiler asks for their shapes."""
    working = torch.float64 if query.dtype is torch.float64 else torch.float32
    totals = query.new_empty(query.shape[:3], dtype=working)
    return empty_like_query(query, value.shape[3]), totals, torch.empty_like(totals)


class Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tiles: FlexTiles, *operands: torch.Tensor) -> Results:
        query, key, value, *captured = operands
        out, log_total, top = attend(tiles, query, key, value, captured)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(*operands, out, log_total)
        ctx.tiles = tiles
        return out, log_total, top

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in gradients):
            raise RuntimeError("gradients of gradients of flex_attention are not supported")
        *operands, out, log_total = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        with torch.no_grad():
            return None, *differentiate(ctx.tiles, operands, wanted, out, log_total, *gradients[:2])


class AttentionCall:
    """One call: its operands as numbers of working precision, grouped by the heads that share keys."""

    def __init__(self, tiles: FlexTiles, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor):
        self.dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
        batch, heads, queries, _ = query.shape
        self.grid = Grid(batch, heads, queries, key.shape[2], query.device)
        self.shared_by = heads // key.shape[1]
        self.query, self.key, self.value = (x.to(self.dtype) for x in (query, key, value))
        if key.shape[0] != batch:
            self.key, self.value = (x.expand(batch, -1, -1, -1) for x in (self.key, self.value))
        self.rows, self.columns = starts_of(queries, QUERIES), starts_of(key.shape[2], KEYS)
        self.positions = Positions(self.grid)
        self.tiles = tiles
        step = self.grid.head_group(self.shared_by)
        self.groups = [
            (slice(b, b + 1), slice(h, min(h + step, heads))) for b in range(batch) for h in range(0, heads, step)
        ]

    def key_heads(self, heads: slice) -> slice:
        return slice(heads.start // self.shared_by, heads.stop // self.shared_by)

    def by_key(self, x: torch.Tensor) -> torch.Tensor:
        """`[heads, rows, n]` of query heads as `[key heads, rows of all that share them, n]`."""
        return x.reshape(x.shape[0] // self.shared_by, -1, x.shape[-1])

    def kinds_of(self, kinds: Any, batch: slice, heads: slice, row: int) -> list[int]:
        """For each tile of keys: the kind that covers all heads of a group."""
        of_batch = kinds[batch.start if len(kinds) > 1 else 0]
        found = [of_head[row] for of_head in (of_batch[heads] if len(of_batch) > 1 else of_batch)]
        return [seen[0] if len(set(seen)) == 1 else 1 for seen in zip(*found, strict=True)]

    def lowest(self, column: int) -> torch.Tensor | None:
        """The first key of this tile that is not in the one before it. None if they do not overlap."""
        start = self.columns[column]
        seen = 0 if column == 0 else self.columns[column - 1] + self.grid.columns
        return self.positions.k[:, :, :, seen : seen + 1] if seen > start else None


def attend(
    tiles: FlexTiles, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, captured: Sequence[torch.Tensor]
) -> Results:
    work = AttentionCall(tiles, query, key, value)
    grid = work.grid
    kinds = tiles.kinds(grid, captured)
    out = empty_like_query(query, value.shape[3])
    log_total = query.new_empty(grid.batch, grid.heads, grid.queries, dtype=work.dtype)
    highest = torch.empty_like(log_total)
    for batch, heads in work.groups:
        keys, values = (x[batch.start, work.key_heads(heads)] for x in (work.key, work.value))
        for row, start in enumerate(work.rows):
            rows = slice(start, start + grid.rows)
            queries = work.by_key(work.query[batch.start, heads, rows])
            count = heads.stop - heads.start
            top = query.new_full((1, count, grid.rows, 1), float("-inf"), dtype=work.dtype)
            total = torch.zeros_like(top)
            summed: torch.Tensor | None = None
            for column, kind in enumerate(work.kinds_of(kinds, batch, heads, row)):
                if kind == EMPTY:
                    continue
                columns = slice(work.columns[column], work.columns[column] + grid.columns)
                raw = torch.bmm(queries, keys[:, columns].transpose(1, 2)).view(1, count, grid.rows, grid.columns)
                weights, top, total, shrink = tiles.forward(
                    raw,
                    work.positions.at(batch, heads, rows, columns),
                    work.lowest(column),
                    top,
                    total,
                    captured,
                    kind != FULL,
                )
                product = (work.by_key(weights[0]), values[:, columns])
                summed = (
                    torch.bmm(*product)
                    if summed is None
                    else torch.baddbmm(summed.mul_(work.by_key(shrink[0])), *product)
                )
            place = (batch, heads, rows)
            log_total[place] = torch.where(top == math.inf, top, top + total.log()).squeeze(-1)
            highest[place] = top.squeeze(-1)
            if summed is None:
                out[place] = 0
            else:
                whole = work.by_key(torch.where(total == 0, 1, total)[0])
                out[place] = (summed / whole).view(1, count, grid.rows, -1).to(out.dtype)
    base = math.log(2)
    return out, log_total / base, highest / base


def differentiate(
    tiles: FlexTiles,
    operands: Sequence[torch.Tensor],
    wanted: Sequence[bool],
    out: torch.Tensor,
    log_total: torch.Tensor,
    of_out: torch.Tensor | None,
    of_log_total: torch.Tensor | None,
) -> list[torch.Tensor | None]:
    """The gradients of the operands."""
    query, key, value, *captured = operands
    work = AttentionCall(tiles, query, key, value)
    grid = work.grid
    kinds = tiles.kinds(grid, captured)
    of_out = torch.zeros_like(out) if of_out is None else of_out
    of_out = of_out.to(work.dtype)
    # The change of each score's weight is relative to what the row's weights change together.
    shift = (of_out * out.to(work.dtype)).sum(-1, keepdim=True)
    if of_log_total is not None:
        shift = shift - of_log_total.unsqueeze(-1) / math.log(2)
    log_total = (log_total * math.log(2)).unsqueeze(-1)
    log_total = log_total.masked_fill(log_total == float("-inf"), float("inf"))  # no weights in rows without keys
    of_query, of_key, of_value = (torch.zeros_like(x, dtype=work.dtype) for x in (work.query, work.key, work.value))
    learnt = [k for k in range(tiles.of_score) if wanted[3 + k]]
    of_captured = {k: torch.zeros_like(captured[k]) for k in learnt}
    for batch, heads in work.groups:
        shared = work.key_heads(heads)
        keys, values = (x[batch.start, shared] for x in (work.key, work.value))
        count = heads.stop - heads.start
        done = 0
        for row, start in enumerate(work.rows):
            rows, fresh = slice(start, start + grid.rows), done - start
            done = start + grid.rows
            place = (batch, heads, rows)
            queries, outer = (work.by_key(x[batch.start, heads, rows]) for x in (work.query, of_out))
            far = log_total[place]
            if fresh > 0:  # rows of the tile before
                far = far.clone()
                far[:, :, :fresh] = float("inf")
            for column, kind in enumerate(work.kinds_of(kinds, batch, heads, row)):
                if kind == EMPTY:
                    continue
                columns = slice(work.columns[column], work.columns[column] + grid.columns)
                at = work.positions.at(batch, heads, rows, columns)
                size = (1, count, grid.rows, grid.columns)
                raw = torch.bmm(queries, keys[:, columns].transpose(1, 2)).view(size)
                with torch.enable_grad():
                    leaf = raw.detach().requires_grad_()
                    held = [x.detach().requires_grad_(k in of_captured) for k, x in enumerate(captured)]
                    scores = tiles.modified(leaf, at, held)
                of_weights = torch.bmm(outer, values[:, columns].transpose(1, 2)).view(size)
                weights, of_scores = tiles.backward(
                    scores.detach(), at, work.lowest(column), (far, of_weights, shift[place]), captured, kind != FULL
                )
                of_raw, *found = gradients_of((scores,), (of_scores,), [leaf, *[held[k] for k in learnt]], False, False)
                for k, gradient in zip(learnt, found, strict=True):
                    if gradient is not None:
                        of_captured[k] += gradient
                of_raw = work.by_key(of_raw[0])
                of_query[batch.start, heads, rows] += torch.bmm(of_raw, keys[:, columns]).view(count, grid.rows, -1)
                of_key[batch.start, shared, columns] += torch.bmm(of_raw.transpose(1, 2), queries)
                of_value[batch.start, shared, columns] += torch.bmm(work.by_key(weights[0]).transpose(1, 2), outer)
    made: list[torch.Tensor | None] = []
    for x, gradient in zip((query, key, value), (of_query, of_key, of_value), strict=True):
        if gradient.shape[0] != x.shape[0]:
            gradient = gradient.sum(0, keepdim=True)
        made.append(strided_like(gradient.to(x.dtype), x))
    made += [of_captured.get(k) for k in range(len(captured))]
    return [gradient if needed else None for gradient, needed in zip(made, wanted, strict=True)]


def strided_like(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = empty_in_order(like, made.shape)
    return found.copy_(made)


def empty_like_query(query: torch.Tensor, columns: int) -> torch.Tensor:
    return empty_in_order(query, (*query.shape[:3], columns))


def empty_in_order(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor whose dimensions lie in memory in the order of those of `like`, but with the last one dense, as torch
    returns the results of flex attention."""
    strides = like.stride()
    order = sorted(reversed(range(len(shape))), key=strides.__getitem__)
    last = len(shape) - 1
    if (
        functools.reduce(lambda size, dim: size if dim == last else size * shape[dim], order[: order.index(last)], 1)
        != 1
    ):
        order = [last, *[dim for dim in order if dim != last]]
    step, found = 1, [0] * len(shape)
    for dim in order:
        found[dim] = step
        step *= shape[dim]
    return like.new_empty_strided(tuple(shape), tuple(found))
