"""Gradients and outputs share memory with each other and with their sources where they do in eager.

Autograd adds to a gradient in place once it is in `.grad`. A gradient shared by two tensors would get both sums.
"""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish

from .test_gradients import Graphs

ROW = torch.arange(1.0, 4)
RECT = torch.arange(6.0).view(3, 2)


def leaf(*shape):
    return nn.Parameter(torch.arange(float(torch.Size(shape).numel())).view(shape) / 4 - 1)


PROGRAMS = {
    "a sum and a sum of sums": (
        lambda w, b, p, q: F.linear(torch.ones(3, 3), w, b) + (0 + p + q),
        (3, 3),
        (3,),
        (3,),
        (3,),
    ),
    "a sum": (lambda p, q: (p + q) * ROW, (3,), (3,)),
    "three": (lambda p, q, r: (p + q + r) * ROW, (3,), (3,), (3,)),
    "a view and another": (lambda p, q: (p.view(-1) + q) * ROW, (3, 1), (3,)),
    "another and a view": (lambda p, q: (p + q.view(-1)) * ROW, (3,), (3, 1)),
    "of two shapes": (lambda p, q: (p + q) * torch.ones(5, 3), (3,), (1, 3)),
    "bias and addend": (lambda w, b, p: F.linear(torch.ones(4, 3), w, b) + p, (3, 3), (3,), (3,)),
    "turned over": (lambda p, q: (p + q).t() @ RECT, (3, 3), (3, 3)),
    "joined": (lambda p, q: torch.cat([p, q]) * 2, (3,), (3,)),
    "parts of what is joined": (lambda p, q: (torch.cat([p, q]) * 2).chunk(2), (3,), (3,)),
    "what flows in": (lambda p, q: (p + 0, q * 1), (3,), (3,)),
    "what flows in, expanded": (lambda p, q: p.expand(4, 3) + q.expand(4, 3), (3,), (3,)),
    "zeros": (lambda p, q: p.floor() + q.floor(), (3,), (3,)),
    "equal, of two products": (lambda p, q: p * ROW + q * ROW, (3,), (3,)),
    "through a kernel": (lambda p, q: (p + q).relu() + 0, (8, 300), (8, 300)),
}


def shared(tensors):
    """Which of them begin at the same address, and which share a storage."""
    return [
        (a, b, x.data_ptr() == y.data_ptr())
        for (a, x), (b, y) in itertools.combinations(enumerate(tensors), 2)
        if x is not None
        and y is not None
        and x.numel()
        and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    ]


def weights(outputs):
    return [torch.arange(1.0, x.numel() + 1).view(x.shape) for x in outputs]


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def from_outside(body, leaves):
    """Backward twice through one call, in place on gradients as clipping is, and on outputs."""
    outputs = as_tuple(body(*leaves))
    flowing = weights(outputs)
    torch.autograd.backward(outputs, flowing, retain_graph=True)
    torch.autograd.backward(outputs, flowing)
    found = shared([*(x.grad for x in leaves), *flowing, *(x.detach() for x in outputs), *leaves])
    with torch.no_grad():
        for x in leaves:
            x.grad.mul_(0.5)
        outputs[0].add_(1)
    return found, flowing


def of_its_own(body, leaves):
    outputs = as_tuple(body(*leaves))
    found = torch.autograd.grad(outputs, leaves, weights(outputs))
    return shared([*found, *leaves]), found, [a is b for a, b in itertools.combinations(found, 2)]


def in_one(body, leaves):
    """The step itself is compiled."""
    outputs = as_tuple(body(*leaves))
    sum((x * x).sum() for x in outputs).backward()


@pytest.mark.parametrize("way", [from_outside, of_its_own, in_one])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_share_memory_as_in_eager(name, way):
    body, *shapes = PROGRAMS[name]
    worlds, graphs = [], Graphs()
    for is_compiled in (False, True):
        leaves = [leaf(*shape) for shape in shapes]
        run, step = body, way
        if is_compiled:
            run, step = (body, burnish.compile(way)) if way is in_one else (burnish.compile(body), way)
        with graphs:
            step(run, leaves)  # traced: eager makes these gradients
            for x in leaves:
                x.grad = None
            seen = [step(run, leaves) for _ in range(3)]
        worlds.append((seen, [x.grad for x in leaves], shared([x.grad for x in leaves])))
    assert graphs.compiled >= (1 if way is in_one else 2) and not graphs.refused
    eager, compiled = worlds
    assert compiled[2] == eager[2]
    torch.testing.assert_close(compiled[0], eager[0])
    torch.testing.assert_close(compiled[1], eager[1])


def test_a_gradient_is_never_the_tensor_that_backward_was_given():
    """Also where that has other strides along a dimension of one element than the compiled code foresaw."""
    given = torch.rand(3, 1).t()
    p = leaf(1, 3)
    compiled = burnish.compile(lambda p: p + 0)
    with Graphs() as graphs:
        compiled(p).backward(given)
        p.grad = None
        compiled(p).backward(given)
    assert graphs.compiled == 2 and given.stride() != p.stride()
    assert p.grad.data_ptr() != given.data_ptr()
    torch.testing.assert_close(p.grad, given)


def test_clipping_scales_a_shared_gradient_once():
    def step(optimizer, model, p, q):
        optimizer.zero_grad()
        model(torch.ones(3, 3)).add(0 + p + q).square().sum().backward()
        norm = nn.utils.clip_grad_norm_([p, q], 0.1)
        optimizer.step()
        return norm

    worlds = []
    for compiler in (lambda fn: fn, burnish.compile):
        torch.manual_seed(0)
        model, p, q = nn.Linear(3, 3), leaf(3), leaf(3)
        optimizer = torch.optim.SGD([p, q, *model.parameters()], lr=0.1, momentum=0.9, fused=True)
        run = compiler(step)
        worlds.append(([run(optimizer, model, p, q) for _ in range(4)], p, q, p.grad, q.grad))
    torch.testing.assert_close(worlds[1], worlds[0])


def test_a_hook_that_writes_into_a_shared_gradient_is_seen_as_in_eager():
    worlds = []
    for compiler in (lambda fn: fn, burnish.compile):
        model, p, q = nn.Linear(3, 3), leaf(3), leaf(3)
        nn.init.ones_(model.weight), nn.init.ones_(model.bias)
        p.register_hook(lambda gradient: gradient.mul_(2))
        run = compiler(lambda: (model(torch.ones(3, 3)) + (0 + p + q)) * ROW)
        for number in range(4):
            run().sum().backward()
            if number == 0:
                p.grad = q.grad = model.bias.grad = None
        worlds.append([p.grad, q.grad, model.bias.grad])
    torch.testing.assert_close(worlds[1], worlds[0])
