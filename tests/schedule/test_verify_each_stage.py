"""The verifier runs after every step of `lower` and of the schedule."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.errors import InternalError
from burnish.ir import verify_and_publish_graph as announcing
from burnish.ir.verify_and_publish_graph import announce
from burnish.schedule import pipeline as planning

from ..ir.parse_graph import parse_graph
from ..recorded_events import recorded

LOWERING = [
    "trace",
    "functionalize",
    "eliminate_dead_and_common_nodes",
    "decompose",
    "eliminate_dead_and_common_nodes",
    "combine_rng_seeds",
    "canonicalize_products",
    "fuse_dequantization",
    "fold_batch_norm",
    "accumulate_embedding_gradients",
    "eliminate_dead_and_common_nodes",
    "clamp_subnormal_softmax",
    "drop_recompute_barriers",
    "unalias_outputs",
]
PLANNING = ["hoist_error_checks", "concat_in_place", "split_reductions", "fuse_gathers", "fuse_scatters"]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 8)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


@pytest.fixture
def verified(monkeypatch):
    """The stages in whose name graphs were verified, in order."""
    found = []
    verify = announcing.verify

    def noting(graph, stage, *args, **kwargs):
        found.append(stage)
        verify(graph, stage, *args, **kwargs)

    monkeypatch.setattr(announcing, "verify", noting)
    return found


def test_inference_is_verified_after_each_step(verified):
    with torch.no_grad():
        burnish.compile(Small().eval(), fullgraph=True)(torch.randn(256, 256))
    assert verified == [*LOWERING, "choose_calls", "split_frozen prologue", "split_frozen main", *PLANNING]


def test_forward_and_backward_are_verified_after_each_step(verified):
    burnish.compile(Small(), fullgraph=True)(torch.randn(32, 256)).sum().backward()
    assert verified == [
        *LOWERING,
        "choose_calls",
        "split_backward forward",
        "split_backward backward",
        *PLANNING,
        *PLANNING,
    ]


def test_training_step_is_verified_after_values_are_computed_again(verified):
    model = Small()

    def step(x):
        return torch.autograd.grad(model(x).square().mean(), tuple(model.parameters()))

    with burnish.settings.patch(memory_budget=0.0):
        burnish.compile(step, fullgraph=True)(torch.randn(32, 256))
    at = len(LOWERING)
    assert verified[: at + 2] == [*LOWERING, "choose_calls", "rematerialize"] and verified[-5:] == PLANNING


def test_program_for_many_sizes_is_verified_at_each_of_them(verified):
    compiled = burnish.compile(Small().eval(), dynamic=True)
    with torch.no_grad():
        compiled(torch.randn(32, 256))
    count = verified.count("choose_symbolic_size_calls")
    assert count >= 3, "a program for many sizes is made from several"
    assert verified.count("split_symbolic_reductions") == count and verified.count("fuse_scatters") == count
    assert "split_reductions" not in verified


def test_ways_to_compute_products_are_verified(verified):
    with torch.no_grad():
        burnish.compile(Small().eval(), options={"max_autotune": True, "shape_padding": True})(torch.randn(32, 256))
    at = verified.index("choose_calls")
    assert verified[at - 2 : at] == ["pad_matmul_operands", "choose_gpu_matmuls"]


@pytest.mark.parametrize("step", range(len(planning.STEPS)), ids=PLANNING)
def test_step_of_the_schedule_that_breaks_a_graph_is_named(monkeypatch, step):
    def broken(graph):
        made = parse_graph(str(graph))
        made.nodes[-1].results[0].type = made.inputs[0].type
        return made

    broken.__name__ = PLANNING[step]
    steps = list(planning.STEPS)
    steps[step] = broken
    monkeypatch.setattr(planning, "STEPS", steps)
    with pytest.raises(InternalError, match=f"stage '{PLANNING[step]}'"):
        burnish.compile(lambda x: torch.sin(x).sum(0), fullgraph=True)(torch.randn(4, 3))


def test_graph_is_not_verified_without_the_setting(verified):
    graph = parse_graph("graph(x: f32[2, 3])\n  return x")
    with burnish.settings.patch(check=False):
        announce("fold_batch_norm", graph)
    assert verified == []


def test_listener_is_given_the_graph_of_each_step():
    graph = parse_graph("graph(x: f32[2, 3])\n  return x")
    with recorded("lower") as seen:
        announce("fold_batch_norm", graph)
    assert [(event.data["stage"], str(event.data["graph"])) for event in seen] == [("fold_batch_norm", str(graph))]
