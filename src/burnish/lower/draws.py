"""The seeds of a graph are drawn at once.

    s1 = random_seed @cuda:0              s1, s2 = random_seeds 2, @cuda:0
    s2 = random_seed @cuda:0       =>

Each draw is a call of torch, and on a GPU a kernel: a model with dropout in each layer has dozens.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from ..ir.graph import Graph, Node
from ..ir.rewrite import Rewriter
from ..ops.random import SEED, SEEDS
from ..tensors.types import CPU


def draw_at_once(graph: Graph) -> Graph:
    wanted = Counter(device_of(node) for node in graph.nodes if node.op is SEED)
    return Drawer(graph, wanted).run() if any(count > 1 for count in wanted.values()) else graph


def device_of(node: Node) -> torch.device:
    return node.args[0] if node.args else CPU


class Drawer(Rewriter):
    def __init__(self, graph: Graph, wanted: Counter[torch.device]):
        super().__init__(graph)
        self.wanted = wanted
        self.drawn: dict[torch.device, list[Any]] = {}

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op is not SEED or self.wanted[device := device_of(node)] == 1:
            return None
        if device not in self.drawn:
            self.drawn[device] = list(self.build.apply(SEEDS, (self.wanted[device], device)))
        return self.drawn[device].pop(0)
