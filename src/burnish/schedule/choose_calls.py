"""Each product and convolution gets the library call that is fastest here.

    y = linear x, w, b, None, None        =>    p = prepare 'onednn packed', w, b
    z = aten.gelu.default y                     z = run 'onednn packed' gelu, x, p

A following activation is fused where a library does it faster than a kernel of our own would after the plain call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from ..ir.graph import Graph, Node, Value, values_in
from ..ir.rewrite import Rewriter
from ..ir.state import state_values
from ..ops.prims import CONV, LINEAR, PREPARE, RUN
from ..tensors.types import TensorType
from .library import Activation, Candidate, Choice, ConvSpec, LinearSpec, candidates, choose, in_channels_last

SECONDS = 0.003
"""For measuring one spec."""

ELEMENT_SECONDS = 0.3e-9
"""What an activation costs in a kernel of our own, an element: it may be fused with what follows there."""

BYTE_SECONDS = 0.3e-9
"""What it costs to lay a tensor out anew, a byte."""

OPAQUE = TensorType((), (), torch.uint8)
"""The type of what a library prepared: nobody but the library looks into it."""

ACTIVATIONS = {
    "aten.relu.default": "relu", "aten.gelu.default": "gelu", "aten.silu.default": "silu",
    "aten.sigmoid.default": "sigmoid", "aten.tanh.default": "tanh", "aten.hardswish.default": "hardswish",
    "aten.hardsigmoid.default": "hardsigmoid", "aten.leaky_relu.default": "leaky_relu",
}


def choose_calls(graph: Graph) -> Graph:
    return Chooser(graph).run()


class Chooser(Rewriter):
    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.state = state_values(graph)
        self.readers: Counter[Value] = Counter()
        self.reader: dict[Value, Node] = {}
        for node in graph.nodes:
            for value in node.operands:
                self.readers[value] += 1
                self.reader[value] = node
        outside = [*values_in(tuple(graph.outputs)), *(write.value for write in graph.writes)]
        self.readers.update(outside)
        for value in outside:
            self.reader.pop(value, None)
        self.fused_into: dict[Node, Value] = {}
        """Activations that the call before them does."""

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node in self.fused_into:
            return self.fused_into[node]
        return self.call(node) if node.op in (LINEAR, CONV) else None

    def call(self, node: Node) -> Value:
        x: Value = self.env[node.args[0]]
        spec = self.spec_of(node, x.type)
        plain = choose(spec, seconds=SECONDS)
        if isinstance(spec, ConvSpec):
            turned = in_channels_last(spec)
            other = choose(turned, seconds=SECONDS) if turned != spec else plain
            if plain.seconds and other.seconds and other.seconds + BYTE_SECONDS * x.type.bytes < plain.seconds:
                spec, plain = turned, other
                x = self.build.restride(x, turned.x.stride)
        follower = self.activation_after(node)
        fused = None if follower is None else self.fused(spec, follower, plain)
        if fused is None or follower is None:
            return self.add_run(node, x, plain.candidate)
        # The product itself is not there any more; nobody but the activation reads it.
        made = self.fused_into[follower] = self.add_run(node, x, fused.candidate)
        return made

    def spec_of(self, node: Node, x: TensorType) -> LinearSpec | ConvSpec:
        weight, bias = (None if arg is None else self.env[arg].type for arg in node.args[1:3])
        is_frozen = all(value in self.state for value in (node.args[1], node.args[2]) if value is not None)
        if node.op is LINEAR:
            return LinearSpec(x, weight, bias, is_frozen=is_frozen)
        stride, padding, dilation, transposed, output_padding, groups = node.args[5:]
        return ConvSpec(x, weight, bias, None, None, stride, padding, dilation, transposed, output_padding, groups,
                        is_frozen)

    def activation_after(self, node: Node) -> Node | None:
        """The activation that is all that is done with the product."""
        value = node.results[0]
        assert value is not None
        reader = self.reader.get(value)
        if reader is None or self.readers[value] != 1 or reader.op.name not in ACTIVATIONS:
            return None
        return reader if reader.results[0] is not None and reader.results[0].type == value.type else None

    def fused(self, spec: LinearSpec | ConvSpec, follower: Node, plain: Choice) -> Choice | None:
        spec = replace(spec, activation=activation_of(follower))
        if all(candidate.call is None for candidate in candidates(spec)):
            return None  # no library fuses it
        choice = choose(spec, seconds=SECONDS)
        if choice.seconds is None or plain.seconds is None or choice.candidate.call is None:
            return None
        own = ELEMENT_SECONDS * choice.candidate.output.numel
        return choice if choice.seconds < plain.seconds + own else None

    def add_run(self, node: Node, x: Value, candidate: Candidate) -> Value:
        given = {"x": x}
        given.update((name, self.env[value]) for name, value in zip(("weight", "bias"), node.args[1:3], strict=True)
                     if value is not None)
        if candidate.prepare is not None:
            weights = [given[name] for name in ("weight", "bias") if name in given]
            made = self.build.apply_typed(PREPARE, (candidate, *weights), {}, (OPAQUE,) * len(candidate.prepared))
            given.update(zip(candidate.prepared, made, strict=True))
        operands = tuple(given[name] for name in candidate.operands)
        return self.build.apply_typed(RUN, (candidate, operands), {}, (candidate.output,))[0]  # type: ignore


def activation_of(node: Node) -> Activation:
    name = ACTIVATIONS[node.op.name]
    if name == "gelu":
        return Activation(name, algorithm=node.kwargs.get("approximate", "none"))
    if name == "leaky_relu":
        return Activation(name, (float(node.args[1]) if len(node.args) > 1 else 0.01,))
    return Activation(name)
