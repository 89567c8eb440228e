"""Combines the draws of Philox seeds in a graph into one call.

    s1 = random_seed @cuda:0              s1, s2 = random_seeds 2, @cuda:0
    s2 = random_seed @cuda:0       =>

Each draw is a call of torch, and on a GPU a kernel: a model with dropout in each layer has dozens. On a CPU one call
gives the same numbers as single draws in order. Draws before and after another random operator stay separate. On a GPU,
a combined draw gives other numbers than single draws in any case, so they are always combined: attention draws in every
layer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from ...ir import fuel
from ...ir.frozen_values import is_random
from ...ir.graph import Graph, Node
from ...ir.rewriter import Rewriter
from ...ops.random_numbers import SEED, SEEDS
from ...tensors.device_facts import CPU

Draw = tuple[int, torch.device]
"""The number of other random operators before it (0 where that does not matter), and its device."""


def combine_rng_seeds(graph: Graph) -> Graph:
    draws: dict[Node, Draw] = {}
    others = 0
    for node in graph.nodes:
        if node.op is SEED:
            device = device_of(node)
            draws[node] = others if device == CPU else 0, device
        elif is_random(node):
            others += 1
    wanted = Counter(draws.values())
    for draw, count in wanted.items():
        if count > 1 and not fuel.allows("combine_rng_seeds", draw[1], count, "draws in one"):
            draws = {node: each for node, each in draws.items() if each != draw}
    wanted = Counter(draws.values())
    return SeedCombiner(graph, draws, wanted).run() if len(wanted) < len(draws) else graph


def device_of(node: Node) -> torch.device:
    return node.args[0] if node.args else CPU


class SeedCombiner(Rewriter):
    def __init__(self, graph: Graph, draws: dict[Node, Draw], wanted: Counter[Draw]):
        super().__init__(graph)
        self.draws, self.wanted = draws, wanted
        self.drawn: dict[Draw, list[Any]] = {}

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        draw = self.draws.get(node)
        if draw is None or self.wanted[draw] == 1:
            return None
        if draw not in self.drawn:
            self.drawn[draw] = list(self.build.apply(SEEDS, (self.wanted[draw], draw[1])))
        return self.drawn[draw].pop(0)
