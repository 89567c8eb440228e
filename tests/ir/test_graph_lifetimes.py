"""Replaced graphs are freed at once, without garbage collection."""

import gc

import torch

from burnish.ir.graph import Node
from burnish.lower.pipeline import lower


def nodes_alive():
    return sum(type(thing) is Node for thing in gc.get_objects())


def test_passes_keep_only_the_first_graph_and_the_last():
    gm = torch.fx.symbolic_trace(lambda x, w: (torch.softmax(torch.nn.functional.linear(x, w).tanh(), -1).sum(0),))
    gc.collect()
    gc.disable()
    try:
        before = nodes_alive()
        lowered = lower(gm, [torch.randn(4, 8), torch.randn(6, 8)])
        # The last pass makes a graph of the same nodes.
        assert nodes_alive() - before <= len(lowered.graph.nodes) + len(lowered.traced.nodes)
    finally:
        gc.enable()
