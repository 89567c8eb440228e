"""Facts that tensors of one shape, dtype and layout do not share: a program that asks gets the answer for each."""

import operator

import pytest
import torch

import burnish

BASE = torch.ones(3, 3, requires_grad=True)


def retaining(retains):
    made = BASE * 2
    if retains:
        made.retain_grad()
    return made


def hooked(method, is_hooked):
    made = torch.ones(3, requires_grad=True)
    if is_hooked:
        getattr(made, method)(lambda _: None)
    return made


def pairs(is_coalesced):
    made = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (3, 3))
    return made.coalesce() if is_coalesced else made


def hybrid(is_hybrid):
    if is_hybrid:
        return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(2, 3), (3, 3))
    return torch.sparse_coo_tensor(torch.tensor([[0, 1], [0, 1]]), torch.ones(2), (3, 3))


def quantized_per_channel(scale, axis=0):
    zeros = torch.zeros(3, dtype=torch.int64)
    return torch.quantize_per_channel(
        torch.arange(9.0).view(3, 3), scale * torch.arange(1, 4), zeros, axis, torch.qint8
    )


FACTS = {
    "retains_grad": (retaining, operator.attrgetter("retains_grad")),
    "output_nr": (lambda k: BASE.unbind(0)[k], operator.attrgetter("output_nr")),
    "hooks": (lambda k: hooked("register_hook", k), lambda x: x._backward_hooks is None),
    "later hooks": (
        lambda k: hooked("register_post_accumulate_grad_hook", k),
        lambda x: x._post_accumulate_grad_hooks is None,
    ),
    "is_coalesced": (pairs, lambda x: (x.is_coalesced(), (x * 2).is_coalesced())),
    "sparse_dim": (hybrid, lambda x: (x.sparse_dim(), (x * 2).dense_dim())),
    "q_scale": (
        lambda k: torch.quantize_per_tensor(torch.ones(3), 0.1 * (1 + k), int(k), torch.quint8),
        lambda x: (x.q_scale(), x.q_zero_point()),
    ),
    "q_per_channel_axis": (
        lambda k: quantized_per_channel(0.1, axis=int(k)),
        lambda x: (x.q_per_channel_axis(), x.dequantize().tolist()),
    ),
    "_is_zerotensor": (
        lambda k: torch._efficientzerotensor(3) if k else torch.zeros(3),
        lambda x: (x._is_zerotensor(), (x + 1).tolist()),
    ),
}


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_facts_of_tensors_are_told_apart(name, dynamic):
    make, ask = FACTS[name]
    compiled = burnish.compile(ask, backend="eager", dynamic=dynamic)
    for k in (False, True, False, True, True):
        assert compiled(make(k)) == ask(make(k))


def test_scales_of_channels_are_data():
    """They would have to be read at each call."""
    graphs = []

    def fn(x):
        return x.dequantize() * x.q_per_channel_scales()

    compiled = burnish.compile(fn, backend=lambda graph, inputs: graphs.append(graph) or graph)
    for scale in (0.1, 0.2, 0.1, 0.3):
        assert compiled(quantized_per_channel(scale)).tolist() == fn(quantized_per_channel(scale)).tolist()
    assert len(graphs) == 1
