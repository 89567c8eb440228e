"""Nodes at the ends of a graph of `DTensor`s that make it a graph of their local tensors.

    y = linear(x, weight)            x0 = enter(x)               each DTensor, made of the input
    return y                  =>     y = linear(x0, weight0)     torch's own rules for DTensors
                                     return leave(y)             its local tensor

Between the two nodes torch's dispatcher applies the rules of `DTensor`: it places results, calls the operators on local
tensors and communicates. A trace of the graph sees these calls, those of backward too, and no `DTensor`. What it finds
out about placements stays in the nodes (`Enter.gradient`, `Leave.spec`), for the caller that has the `DTensor`s.

A gradient may be placed differently from its tensor. Its local tensor then has another shape, which autograd refuses.
So a *carrier*, a tensor of that shape without data, takes the place of the local tensor in autograd.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch

from ..concurrency.loaded_modules import loaded

Shape = tuple[int, ...]


class Placed(NamedTuple):
    """A `DTensor` without data."""

    spec: Any
    shape: Shape
    """That of the local tensor."""


def api() -> Any:
    """The module of `DTensor`, or None where the program has not imported it."""
    return loaded("torch.distributed.tensor._api")


def is_distributed(value: Any) -> bool:
    return is_distributed_kind(type(value))


def is_distributed_kind(kind: type) -> bool:
    return (module := api()) is not None and kind is module.DTensor


def is_placed(value: Any, spec: Any, mesh: Any, shape: Shape, stride: Shape) -> bool:
    """Whether a `DTensor` is placed so, on that very mesh, with such a local tensor."""
    local, found = value._local_tensor, value._spec
    return found.mesh is mesh and found == spec and local.shape == shape and local.stride() == stride


def made_of(local: torch.Tensor, spec: Any, requires_grad: bool = False) -> Any:
    return api().DTensor(local, copy.copy(spec), requires_grad=requires_grad)


def waited(local: Any) -> torch.Tensor:
    """The tensor itself where it is the pending result of a collective."""
    return local if type(local) is torch.Tensor or not hasattr(local, "trigger_wait") else local.wait()


def local_of(value: Any) -> torch.Tensor:
    return waited(value._local_tensor)


def carrier(like: torch.Tensor, shape: Shape) -> torch.Tensor:
    return like.new_zeros(()).expand(shape)


class EnterGraph(torch.autograd.Function):
    """A `DTensor` of its local tensor. Its gradient is placed as torch's rules say."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, carrier: torch.Tensor | None, node: Enter) -> Any:
        ctx.node, ctx.shape, ctx.is_carried = node, local.shape, carrier is not None
        ctx.set_materialize_grads(False)
        requires_grad = local.requires_grad if carrier is None else carrier.requires_grad
        return made_of(local.view_as(local), node.spec, requires_grad)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        local = None if gradients[0] is None else ctx.node.local_gradient(gradients[0], ctx.shape)
        return (None, local, None) if ctx.is_carried else (local, None, None)


class LeaveGraph(torch.autograd.Function):
    """The local tensor of a `DTensor`."""

    @staticmethod
    def forward(ctx: Any, value: Any, node: Leave) -> Any:
        ctx.node = node
        ctx.set_materialize_grads(False)
        local = local_of(value)
        if node.carries is None:
            return local.view_as(local)
        made = local.view_as(local)
        ctx.mark_non_differentiable(made)
        return made, carrier(local, node.carries)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[-1]
        return None if gradient is None else made_of(gradient, ctx.node.tangent), None


class EndNode:
    of_distributed_tensors = True

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = type(self).__name__.lower()
        self.__module__ = __name__


class Enter(EndNode):
    """The node before all uses of an input. `spec`: what the inputs are as `DTensor`s."""

    def __init__(self, spec: Any, carries: Shape | None = None):
        super().__init__()
        self.spec, self.carries = spec, carries
        self.gradient: Any = None
        """What the input's gradient is as a `DTensor`, set by the last backward."""
        self.wanted: Shape | None = None
        """The shape of the carrier that the gradient needs."""
        self.is_final = False
        """Whether the trace is not repeated with other carriers."""

    def __call__(self, local: torch.Tensor, carrier: torch.Tensor | None = None) -> Any:
        return EnterGraph.apply(local, carrier, self)

    def local_gradient(self, gradient: Any, shape: Shape) -> torch.Tensor | None:
        expected = self.carries or tuple(shape)
        if tuple(gradient._local_tensor.shape) != expected:
            if not self.is_final:
                self.wanted = tuple(gradient._local_tensor.shape)
                return None
            gradient = gradient.redistribute(
                placements=(self.spec if self.carries is None else self.gradient).placements
            )
        self.gradient = gradient._spec
        return local_of(gradient)


class Leave(EndNode):
    """The node of an output. `expected`: what its gradient will be, if that is known."""

    def __init__(self, expected: Placed | None = None, carries: Shape | None = None):
        super().__init__()
        self.expected, self.carries = expected, carries
        self.spec: Any = None
        """What the output is as a `DTensor`, or None."""
        self.tangent: Any = None
        """What its gradient has to be as a `DTensor`."""
        self.is_view = self.requires_grad = False

    def __call__(self, value: Any) -> Any:
        if not is_distributed(value):
            self.spec = None
            return value
        self.spec = value._spec
        self.tangent = normal_gradient(self.spec) if self.expected is None else self.expected.spec
        self.is_view = value._is_view()
        self.requires_grad = value.requires_grad and torch.is_grad_enabled()
        return LeaveGraph.apply(value, self) if self.requires_grad else local_of(value)


class Written(EndNode):
    """The node after all writes to an input. Only autograd can change the history of a tensor from outside."""

    def __call__(self, value: Any) -> None:
        if value.grad_fn is not None and not isinstance(value.grad_fn, EnterGraph._backward_cls):  # type: ignore
            raise RuntimeError("it writes to a DTensor from outside what gradients flow through")


def normal_gradient(spec: Any) -> Any:
    """The placements that torch gives the gradient of a `DTensor` where it may choose: no sum is pending in it."""
    normalized = api()._normalize_placements_for_grad(spec.placements)
    return spec if normalized == spec.placements else type(spec)(spec.mesh, normalized, tensor_meta=spec.tensor_meta)
