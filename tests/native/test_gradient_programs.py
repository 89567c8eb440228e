"""Random programs of `gradient_programs`: gradients, and the memory that they share, are as in eager."""

import pytest
import torch

import burnish
from burnish.lower.trace.find_aliased_gradients import taken_from_heap
from burnish.settings import patch

from .gradient_programs import made, observed
from .test_gradients import Graphs

FOUND = (9, 10, 31, 34, 36, 95, 139, 165, 425, 3195)
"""Seeds of programs that differed from eager."""


@pytest.mark.parametrize("seeds", [FOUND, range(1000, 1040)])
def test_random_programs_share_gradients_as_in_eager(seeds):
    compared = 0
    for seed in seeds:
        program = made(seed)
        try:
            expected = observed(program, lambda fn: fn)
        except RuntimeError:  # shapes that cannot be added
            continue
        burnish.reset()
        with patch(never_slower=False, on_error="raise", check=True), Graphs() as graphs:
            assert observed(program, burnish.compile) == expected, program
        assert graphs.compiled >= 1 and not graphs.refused
        compared += 1
    assert compared >= len(seeds) / 2


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("weight", [None, "given"])
def test_gradients_scaled_between_two_backwards_are_added_to_once(shape, weight):
    """Both leaves get the tangent, one of them as a view. In eager one of the gradients is a copy."""
    seen = []
    for compiler in (lambda fn: fn, burnish.compile):
        p, q = (torch.ones(shape, requires_grad=True) for _ in range(2))
        run = compiler(lambda p, q: p.view(shape) + q if shape else p.sum() + q)
        with patch(never_slower=False), Graphs() as graphs:
            run(p, q).sum().backward()
            p.grad = q.grad = None
            for _ in range(2):
                y = run(p, q)
                flowing = torch.ones(shape) if weight else None
                y = y if weight else y.sum()
                y.backward(flowing, retain_graph=True)
                for x in (p, q):
                    x.grad.mul_(0.5)
                y.backward(flowing)
                seen.append((p.grad.tolist(), q.grad.tolist(), flowing is not None and flowing.tolist()))
    assert seen[2:] == seen[:2] and graphs.compiled >= 1 and not graphs.refused


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11])
def test_leaves_are_reached_in_the_order_of_autograds_queue(count):
    class Several(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            return inputs[0] * 1

        @staticmethod
        def backward(ctx, gradient):
            return (gradient,) * count

    leaves, reached = [torch.ones((), requires_grad=True) for _ in range(count)], []
    for k, leaf in enumerate(leaves):
        leaf.register_hook(lambda _, k=k: reached.append(k))
    Several.apply(*leaves).backward()
    assert reached == taken_from_heap(count)
