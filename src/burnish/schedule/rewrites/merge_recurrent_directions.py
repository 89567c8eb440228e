"""Merges the two directions of a bidirectional recurrent layer into one call; eager's operator computes one each.

a, … = mkldnn_rnn_layer x, …, False, …
b, … = mkldnn_rnn_layer x, …, True, …         =>    y, hidden, cell = run 'own' lstm both ways, x, …
y = cat [a, b], -1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...ir.graph import Graph, Node, Value
from ..library.call_candidates.recurrent import LSTM
from ..library.call_specs import RecurrentSpec

LAYER = "aten.mkldnn_rnn_layer.default"
X, WEIGHTS, STATES, REVERSE, BATCH_SIZES, MODE, SIZE, HAS_BIASES = 0, slice(1, 5), slice(5, 7), 7, 8, 9, 10, 12
"""Positions among the operator's arguments."""


@dataclass(frozen=True, slots=True)
class Layer:
    nodes: tuple[Node, ...]
    """One for each direction."""
    joined: Node | None = None
    """The concatenation of both results, which is their only reader."""

    @property
    def x(self) -> Value:
        return self.nodes[0].args[X]

    def spec(self, x: Value) -> RecurrentSpec:
        """The specification, with another value `x` of the same elements."""
        return RecurrentSpec(
            x.type,
            self.nodes[0].args[SIZE],
            tuple(node.args[REVERSE] for node in self.nodes),
            self.nodes[0].args[HAS_BIASES],
        )

    @property
    def weights(self) -> tuple[Value, ...]:
        count = 4 if self.nodes[0].args[HAS_BIASES] else 2
        return tuple(value for node in self.nodes for value in node.args[WEIGHTS][:count])

    @property
    def states(self) -> tuple[Value, ...]:
        return tuple(value for node in self.nodes for value in node.args[STATES])


def layers_of(graph: Graph, is_frozen: Callable[[Value], bool]) -> dict[Node, Layer]:
    """Layers by their last node. A layer is left as it is where its weights may change: those are not packed."""
    number = {node: at for at, node in enumerate(graph.nodes)}
    readers = graph.readers()
    outside = set(graph.leaving_values())
    found: dict[Node, Layer] = {}
    waiting: list[Layer] = []
    for node in graph.nodes:
        if node.op.name != LAYER or not is_plain(node, readers, outside) or not all(map(is_frozen, weights_of(node))):
            continue
        layer = Layer((node,))
        for other in waiting:
            joined = joined_by(other.nodes[0], node, readers, outside)
            if joined is not None and all(
                number[reader] > number[node] for value in other.nodes[0].results for reader in readers.get(value, ())
            ):  # type: ignore[arg-type]
                layer = Layer((*other.nodes, node), joined)
                waiting.remove(other)
                del found[other.nodes[0]]
                break
        else:
            waiting.append(layer)
        found[node] = layer
    return found


def weights_of(node: Node) -> tuple[Value, ...]:
    return Layer((node,)).weights


def is_plain(node: Node, readers: dict[Value, list[Node]], outside: set[Value]) -> bool:
    """Whether it is an LSTM over sequences of one length whose workspace has no reader."""
    room = node.results[3]
    return (
        node.args[MODE] == LSTM
        and not node.args[BATCH_SIZES]
        and node.args[X].dtype is torch.float32
        and None not in node.results[:3]
        and (room is None or not readers.get(room) and room not in outside)
    )


def joined_by(first: Node, second: Node, readers: dict[Value, list[Node]], outside: set[Value]) -> Node | None:
    """The concatenation of the results of two directions of one layer, if it is their only reader."""
    same = all(first.args[at] == second.args[at] for at in (SIZE, HAS_BIASES)) and first.args[X] is second.args[X]
    if not same or first.args[REVERSE] or not second.args[REVERSE]:
        return None
    results = [node.results[0] for node in (first, second)]
    every = [value for node in (first, second) for value in node.results if value is not None]
    joined = readers.get(results[0], [None])[0]  # type: ignore[arg-type]
    if (
        joined is None
        or joined.op.name != "aten.cat.default"
        or any(value in outside for value in every)
        or any(readers.get(value) != [joined] for value in results)
    ):  # type: ignore[arg-type]
        return None
    parts, dim = joined.args[0], joined.args[1] if len(joined.args) > 1 else 0
    return joined if list(parts) == results and dim in (2, -1) else None
