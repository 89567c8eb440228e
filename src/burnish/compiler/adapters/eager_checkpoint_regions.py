"""Activation checkpointing in a graph that runs eagerly: each region is one call that saves nothing for backward.

    linear = linear(x, weight, bias)    region 0              region_0 = checkpointed_0(x, weight, bias)
    gelu = gelu(linear)                 region 0       =>     getitem = region_0[0]
    add = gelu + x                                            add = getitem + x

Capture marks calls inside `torch.utils.checkpoint.checkpoint` (`capture/pytorch/activation_checkpointing.py`).
`runtime/eager/eager_activation_checkpointing.py` computes a region again in backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...captured_graph.checkpoint_hooks import GIVEN, MARK, Mark
from ...captured_graph.lazy_graph_module import graph_module
from ...foundation.torch_private import LazyGraphModule
from ...runtime.eager.eager_activation_checkpointing import RecordedCalls, StepValue, checkpointed, steps_of
from .. import CompiledFn


def has_regions(gm: GraphModule) -> bool:
    return any(MARK in node.meta for node in gm.graph.nodes)


def with_regions(gm: GraphModule) -> GraphModule:
    """The graph as it runs eagerly: itself if nothing is checkpointed."""
    if not has_regions(gm):
        return gm
    made, env = Graph(), {}
    done: set[int] = set()
    for node in gm.graph.nodes:
        mark: Mark | None = node.meta.get(MARK)
        if node.op == "output":
            made.output(torch.fx.node.map_arg(node.args[0], env.__getitem__))
        elif mark is None:
            env[node] = made.node_copy(node, env.__getitem__)
        elif mark.number not in done:
            done.add(mark.number)
            add_region(gm, made, env, mark, [n for n in gm.graph.nodes if n.meta.get(MARK) == mark])
    result = graph_module(gm, made)
    result.meta.update(gm.meta)
    return result


def add_region(gm: GraphModule, made: Graph, env: dict[Node, Node], mark: Mark, nodes: Sequence[Node]) -> None:
    inside = set(nodes)
    inputs = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside))
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    part, within = Graph(), {}
    for node in inputs:
        within[node] = part.placeholder(node.name)
    for node in nodes:
        within[node] = part.node_copy(node, within.__getitem__)
    part.output(tuple(within[node] for node in outputs))
    region = EagerRegion(mark, graph_module(gm, part), steps(mark, inputs, nodes))
    call = made.call_function(region, tuple(env[node] for node in inputs))
    for at, node in enumerate(outputs):
        env[node] = made.call_function(operator.getitem, (call, at))


def steps(mark: Mark, inputs: Sequence[Node], nodes: Sequence[Node]) -> RecordedCalls:
    places = {node: StepValue(at) for at, node in enumerate((*inputs, *nodes))}
    calls = [(function_of(node), *(plain(part, places) for part in (node.args, node.kwargs))) for node in nodes]
    return steps_of(len(inputs), calls, mark.draws, tuple(mark.number in node.meta.get(GIVEN, ()) for node in inputs))


def function_of(node: Node) -> Callable:
    return getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target  # type: ignore


def plain(tree: Any, places: dict[Node, StepValue]) -> Any:
    """A node's arguments with places in it, in Python's own tuples, lists and dictionaries."""
    if isinstance(tree, Node):
        return places[tree]
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(plain(part, places) for part in tree)
    if isinstance(tree, list):
        return [plain(part, places) for part in tree]
    if isinstance(tree, dict):
        return {key: plain(part, places) for key, part in tree.items()}
    if isinstance(tree, slice):
        return slice(*(plain(part, places) for part in (tree.start, tree.stop, tree.step)))
    return tree


class EagerRegion:
    """The target of a node that runs a whole region."""

    def __init__(self, mark: Mark, gm: GraphModule, steps: RecordedCalls):
        self.__name__ = self.__qualname__ = f"checkpointed_{mark.number}"
        self.__module__ = __name__
        self.gm, self.steps = gm, steps

    def __call__(self, *inputs: Any) -> tuple:
        return checkpointed(self.gm.forward, self.steps, *inputs)


def run_eagerly(gm: GraphModule) -> CompiledFn:
    """Runs the graph eagerly, one Python call a node. Its Python code is generated on the first call."""
    forward: Any = None

    def call(*args: Any) -> Any:
        nonlocal forward
        if forward is None:
            made = with_regions(gm)
            LazyGraphModule.force_recompile(made)
            forward = made.forward
        return forward(*args)

    return call
