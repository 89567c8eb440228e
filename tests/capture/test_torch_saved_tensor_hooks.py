"""Hooks for saved tensors inside compiled code: switched off around a block, or used there."""

import pytest
import torch
from torch.autograd import graph

import burnish

from ..recorded_events import recorded
from .harness import program


def gradient_of(fn, x):
    return torch.autograd.grad(fn(x).sum(), x)[0]


def test_switching_the_hooks_off_is_part_of_the_graph():
    def fn(x):
        with graph.disable_saved_tensors_hooks("not here"):
            y = x.exp() * x
        return y * 2

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        torch.testing.assert_close(gradient_of(compiled, x), gradient_of(fn, x))
        assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is None
    with graph.disable_saved_tensors_hooks("outside"):
        for _ in range(3):
            compiled(torch.randn(3))
            assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() == "outside"


def test_hooks_inside_such_a_block_raise_on_every_call():
    def fn(x):
        with graph.disable_saved_tensors_hooks("not here"):
            y = x.exp()
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                return y * y

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="not here"):
            compiled(torch.ones(2, requires_grad=True))
        assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is None


@pytest.mark.parametrize("outside", ([False, False, True, True, False], [True, False, True]), ids=("later", "first"))
def test_switching_off_hooks_of_the_caller_raises_and_changes_nothing(outside):
    def fn(x):
        with graph.disable_saved_tensors_hooks("nope"):
            return x.exp() * x

    def pack(tensor):
        packed.append(tensor)
        return tensor

    compiled, packed = burnish.compile(fn, backend="eager"), []
    for has_hooks in outside:
        x = torch.ones(3, requires_grad=True)
        if has_hooks:
            with graph.saved_tensors_hooks(pack, lambda tensor: tensor), pytest.raises(RuntimeError, match="nope"):
                compiled(x)
        else:
            torch.testing.assert_close(gradient_of(compiled, x), gradient_of(fn, x))
        assert not packed and torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is None


@program
def test_a_break_inside_of_the_block():
    seen = []

    def fn(x):
        with graph.disable_saved_tensors_hooks("not here"):
            y = x.exp()
            if y.sum() > 0:
                seen.append(torch._C._autograd._saved_tensors_hooks_get_disabled_error_message())
            z = y * x
        return z + 1

    return fn, lambda i: (torch.full((2,), 1.0 + i),), seen


@program
def test_hooks_are_used_inside():
    packed = []

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        return tensor

    def fn(x):
        with graph.saved_tensors_hooks(pack, lambda tensor: tensor * 1):
            y = (x.exp() * x).sum()
        y.backward()
        return x.grad

    return fn, lambda i: (torch.full((2 + i,), 1.0, requires_grad=True),), packed


@pytest.mark.parametrize("block", [graph.save_on_cpu, lambda: graph.saved_tensors_hooks(lambda t: t, lambda t: t)])
def test_a_break_says_that_hooks_are_entered(block):
    def fn(x):
        with block():
            return x.exp() * x

    with recorded("breaks", datum="text") as found:
        burnish.compile(fn, backend="eager")(torch.randn(3, requires_grad=True))
    assert "hooks on saved tensors are entered" in found[0] and "pybind11" not in "".join(found)
