"""Tiles of flex attention: graphs of the work on one tile, and the tiles that a mask leaves out.

    tiles = FlexTiles(score, mask, scale, compile_graph)
    weights, top, total, shrink = tiles.forward(raw, at, lowest, states, captured, is_masked)
    kinds = tiles.kinds(grid, captured)           EMPTY, PARTIAL or FULL, for each tile

`score` and `mask` are graphs of the user's functions on indices that broadcast: `[1, 1, 1, 1]` for the batch, then
`[1, heads, 1, 1]`, `[1, 1, queries, 1]` and `[1, 1, 1, keys]`. A tile has at most `QUERIES` rows and `KEYS` columns. If
the length is not a multiple, the last tile overlaps the one before it, so that all tiles of a sequence have one shape.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...captured_graph.lazy_graph_module import graph_module

QUERIES, KEYS = 128, 256
MOST_NUMBERS = 1 << 20
"""Scores that are computed together: more heads than fit are computed in groups."""

EMPTY, PARTIAL, FULL = range(3)
INDICES = ("b", "h", "q", "k")

Indices = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Compile = Callable[[GraphModule], Callable[..., Any]]


def starts_of(length: int, size: int) -> list[int]:
    """The first element of each tile. The last tile ends at the end."""
    if length <= size:
        return [0]
    return [min(start, length - size) for start in range(0, length, size)]


@dataclass(frozen=True, slots=True)
class Grid:
    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device

    @property
    def rows(self) -> int:
        return min(self.queries, QUERIES)

    @property
    def columns(self) -> int:
        return min(self.keys, KEYS)

    def head_group(self, shared_by: int) -> int:
        """How many query heads are computed together: a multiple of those that share keys."""
        fit = max(MOST_NUMBERS // (self.rows * self.columns), 1)
        return min(self.heads, max(fit // shared_by, 1) * shared_by)


class Positions:
    """The index tensors of a grid, as views of four ranges."""

    def __init__(self, grid: Grid):
        def indices(count: int, dim: int) -> torch.Tensor:
            shape = [1, 1, 1, 1]
            shape[dim] = count
            return torch.arange(count, device=grid.device).view(shape)

        self.b, self.h, self.q, self.k = (
            indices(count, dim) for dim, count in enumerate((grid.batch, grid.heads, grid.queries, grid.keys))
        )

    def at(self, batch: slice, heads: slice, rows: slice, columns: slice) -> Indices:
        return self.b[batch], self.h[:, heads], self.q[:, :, rows], self.k[:, :, :, columns]


class FlexTiles:
    """`score` and `mask` are None where there is nothing to compute. `captured`: the tensors that they read, those of
    `score` first."""

    def __init__(
        self, score: GraphModule | None, mask: GraphModule | None, scale: float, captured: int, compile_graph: Compile
    ):
        self.score, self.mask, self.scale, self.compile_graph = score, mask, scale, compile_graph
        self.of_score = captured
        """How many captured tensors `score` reads."""
        self.compiled: dict[tuple, Callable[..., Any]] = {}
        self.known: list[tuple[Grid, list[torch.Tensor], Any]] = []
        self.mask_reads = frozenset() if mask is None else read_indices(mask)

    def with_compiler(self, compile_graph: Compile) -> FlexTiles:
        return FlexTiles(self.score, self.mask, self.scale, self.of_score, compile_graph)

    def run(self, key: tuple, make: Callable[[], GraphModule], *given: Any) -> Any:
        """The graph `key`, compiled once for each layout of what it is given."""
        key = (*key, *[(x.shape, x.stride(), x.dtype, x.requires_grad) for x in given])
        function = self.compiled.get(key)
        if function is None:
            function = self.compiled[key] = self.compile_graph(make())
        return function(*given)

    # ---- the work on one tile

    def forward(
        self,
        raw: torch.Tensor,
        at: Indices,
        lowest: torch.Tensor | None,
        top: torch.Tensor,
        total: torch.Tensor,
        captured: Sequence[torch.Tensor],
        is_masked: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Unnormalized weights, the new maximum and sum of each row, and the factor for what was summed before.
        `lowest`: the first key of a tile that was not in the one before it."""
        extra = () if lowest is None else (lowest,)
        made: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] = self.run(
            ("forward", is_masked, lowest is not None),
            lambda: self.forward_graph(len(captured), is_masked, lowest is not None),
            *(raw, *at, top, total, *extra, *captured),
        )
        return made

    def forward_graph(self, captured: int, is_masked: bool, overlaps: bool) -> GraphModule:
        made = TileGraph()
        raw, *at = map(made.input, ("raw", *INDICES))
        top, total = made.input("top"), made.input("total")
        lowest = made.input("lowest") if overlaps else None
        held = [made.input(f"captured_{n}") for n in range(captured)]
        scores = self.masked(made, self.scored(made, raw, at, held), at, held, lowest, is_masked)
        call = made.call
        higher = call(torch.maximum, top, call(torch.amax, scores, -1, True))
        base = call(torch.masked_fill, higher, call(torch.eq, higher, float("-inf")), 0.0)
        weights = call(torch.exp, call(torch.sub, scores, base))
        shrink = call(torch.exp, call(torch.sub, top, base))
        total = call(torch.add, call(torch.mul, total, shrink), call(torch.sum, weights, -1, True))
        return made.module(weights, higher, total, shrink)

    def scored(self, made: TileGraph, raw: Node, at: list[Node], held: list[Node]) -> Node:
        scores = made.call(torch.mul, raw, self.scale)
        return scores if self.score is None else made.inline(self.score, [scores, *at, *held[: self.of_score]])

    def masked(
        self, made: TileGraph, scores: Node, at: list[Node], held: list[Node], lowest: Node | None, is_masked: bool
    ) -> Node:
        seen = [made.inline(self.mask, [*at, *held[self.of_score :]])] if is_masked and self.mask is not None else []
        if lowest is not None:
            seen.append(made.call(torch.ge, at[3], lowest))
        for each in seen:
            scores = made.call(torch.where, each, scores, float("-inf"))
        return scores

    def backward(
        self,
        scores: torch.Tensor,
        at: Indices,
        lowest: torch.Tensor | None,
        gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        captured: Sequence[torch.Tensor],
        is_masked: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights, and the gradients of the modified scores."""
        extra = () if lowest is None else (lowest,)
        made: tuple[torch.Tensor, torch.Tensor] = self.run(
            ("backward", is_masked, lowest is not None),
            lambda: self.backward_graph(len(captured), is_masked, lowest is not None),
            *(scores, *at, *gradients, *extra, *captured),
        )
        return made

    def backward_graph(self, captured: int, is_masked: bool, overlaps: bool) -> GraphModule:
        made = TileGraph()
        scores, *at = map(made.input, ("scores", *INDICES))
        log_total, of_weights, shift = map(made.input, ("log_total", "of_weights", "shift"))
        lowest = made.input("lowest") if overlaps else None
        held = [made.input(f"captured_{n}") for n in range(captured)]
        scores = self.masked(made, scores, at, held, lowest, is_masked)
        call = made.call
        weights = call(torch.exp, call(torch.sub, scores, log_total))
        return made.module(weights, call(torch.mul, weights, call(torch.sub, of_weights, shift)))

    def modified(self, raw: torch.Tensor, at: Indices, captured: Sequence[torch.Tensor]) -> torch.Tensor:
        """The scores of a tile before masking, connected to `raw` and `captured` for gradients."""
        scores: torch.Tensor = self.run(("modified",), self.modified_graph, *(raw, *at, *captured[: self.of_score]))[0]
        return scores

    def modified_graph(self) -> GraphModule:
        made = TileGraph()
        raw, *at = map(made.input, ("raw", *INDICES))
        held = [made.input(f"captured_{n}") for n in range(self.of_score)]
        return made.module(self.scored(made, raw, at, held))

    # ---- which tiles a mask leaves

    def kinds(self, grid: Grid, captured: Sequence[torch.Tensor]) -> Any:
        """The kind of each tile as nested lists: batch, head, rows, columns. Batches and heads that see the same mask
        share one entry."""
        captured = captured[self.of_score :]
        for known, read, kinds in self.known:
            if known == grid and all(map(torch.equal, read, captured)):
                return kinds
        kinds = self.found_kinds(grid, captured)
        if sum(x.numel() for x in captured) <= grid.queries + grid.keys + grid.batch * (grid.queries + grid.keys):
            self.known.append((grid, [x.clone() for x in captured], kinds))
            del self.known[:-4]
        return kinds

    def found_kinds(self, grid: Grid, captured: Sequence[torch.Tensor]) -> Any:
        rows, columns = starts_of(grid.queries, QUERIES), starts_of(grid.keys, KEYS)
        if self.mask is None:
            return [[[[FULL] * len(columns)] * len(rows)]]
        positions = Positions(grid)
        batch = slice(None) if "b" in self.mask_reads else slice(1)
        heads = slice(None) if "h" in self.mask_reads else slice(1)
        found = []
        for row, column in itertools.product(rows, self.strips(grid)):
            at = positions.at(batch, heads, slice(row, row + grid.rows), column)
            shape = torch.broadcast_shapes(*[x.shape for x in at])
            found.append(self.run(("count",), functools.partial(self.count_graph, shape), *at, *captured)[0])
        parts = len(self.strips(grid))
        counts = torch.stack([torch.cat(found[n : n + parts], -1) for n in range(0, len(found), parts)], 2)
        whole = grid.rows * grid.columns
        kinds = (counts > 0).int() + (counts == whole).int()
        return kinds.tolist()

    @staticmethod
    def strips(grid: Grid) -> list[slice]:
        """The keys in parts: whole tiles, and the last one, which overlaps."""
        whole = grid.keys // grid.columns * grid.columns
        return [slice(whole), slice(grid.keys - grid.columns, None)] if whole < grid.keys else [slice(whole)]

    def count_graph(self, shape: torch.Size) -> GraphModule:
        """How many scores of each tile of a strip are not masked."""
        assert self.mask is not None
        made = TileGraph()
        at = list(map(made.input, INDICES))
        captured = sum(node.op == "placeholder" for node in self.mask.graph.nodes) - len(INDICES)
        held = [made.input(f"captured_{n}") for n in range(captured)]
        columns = min(shape[-1], KEYS)
        seen = made.call(torch.Tensor.expand, made.inline(self.mask, [*at, *held]), shape)
        tiles = made.call(torch.unflatten, seen, -1, (shape[-1] // columns, columns))
        return made.module(made.graph.call_function(torch.sum, (tiles, (2, 4)), {"dtype": torch.int32}))


def read_indices(graph: GraphModule) -> frozenset[str]:
    """Which of `INDICES` a graph of a mask reads."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return frozenset(name for name, node in zip(INDICES, inputs, strict=False) if node.users)


class TileGraph:
    """A graph under construction."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.root: dict[str, Any] = {}

    def input(self, name: str) -> Node:
        return self.graph.placeholder(name)

    def call(self, function: Callable[..., Any], *args: Any) -> Node:
        return self.graph.call_function(function, args)

    def inline(self, made: GraphModule, given: list[Node]) -> Node:
        """The graph's only output for these inputs."""
        values = iter(given)
        copies: dict[Node, Node] = {}
        for node in made.graph.nodes:
            if node.op == "placeholder":
                copies[node] = next(values)
            elif node.op == "output":
                return copies[node.args[0][0]]
            else:
                copies[node] = self.graph.node_copy(node, copies.__getitem__)
        raise ValueError("a graph without an output")

    def module(self, *outputs: Node) -> GraphModule:
        self.graph.output(tuple(outputs))
        return graph_module(self.root, self.graph)
