"""Templates of tensors of subclasses: made again around the graph's plain tensors.

t0 = make_wrapper()                    as the program made it: class, size, strides, dtype
t0.__dict__['q'] = G[0]                the inner tensors, and other attributes
t1 = as_subclass(G[1], Tagged)         one without rules of dispatch shows a plain tensor's memory
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..guards.tensor_metadata import WithoutRules
from .unrebuildable_object import Unrebuildable


def build_subclass(to: Any, value: torch.Tensor) -> str:
    subclasses = to.tracer.subclasses
    wrapper, shown = subclasses.wrapper(value), subclasses.shown_by(value)
    if wrapper is None and shown is None:
        raise Unrebuildable(value)
    if wrapper is None:
        again = detached_again if subclasses.is_detached(value) else shown_again
        return to.name(value, f"{to.constant(again)}({to.build(shown)}, {to.constant(type(value))})")
    _, args, kwargs = wrapper
    with WithoutRules():
        view = subclasses.view(value)
        if is_changed(value, kwargs) or value._is_view() and view is None:
            raise Unrebuildable(value)
    maker: Any = functools.partial(torch.Tensor._make_wrapper_subclass, *args, **kwargs)
    if view is None:
        return to.name(value, f"{to.constant(maker)}()")
    marker: Any = functools.partial(marked_as_view, view.operator, maker, view.has_gradients)
    given = ", ".join(map(to.build, view.args))
    named = "".join(f", {name}={to.build(part)}" for name, part in view.kwargs.items())
    return to.name(value, f"{to.constant(marker)}({given}{named})")


def is_changed(value: torch.Tensor, kwargs: dict) -> bool:
    """Whether a wrapper has become something that its constructor does not make: a part of an autograd graph."""
    return (
        value.grad_fn is not None
        or value.requires_grad != bool(kwargs.get("requires_grad", False))
        or value.is_inference() != torch.is_inference_mode_enabled()
    )


class Answering:
    """An entry of the dispatch stack that gives the result of the next operator."""

    supports_higher_order_operators = False

    def __init__(self, maker: Callable[[], torch.Tensor]):
        self.maker = maker

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return self.maker()  # nothing else may refer to it: torch would mark a copy


def marked_as_view(
    operator: Any, maker: Callable[[], torch.Tensor], has_gradients: bool, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """A new wrapper that torch marks as a view of the operator's first argument."""
    before, modes = torch.is_grad_enabled(), torch._C._len_torch_dispatch_stack()
    try:
        torch._C._set_grad_enabled(has_gradients)
        torch._C._push_on_torch_dispatch_stack(Answering(maker))
        with WithoutRules():
            return operator(*args, **kwargs)
    finally:
        if torch._C._len_torch_dispatch_stack() > modes:
            torch._C._pop_torch_dispatch_stack(None)
        torch._C._set_grad_enabled(before)


def shown_again(plain: torch.Tensor, kind: type) -> torch.Tensor:
    with WithoutRules():
        return torch.Tensor.as_subclass(plain, kind)


def detached_again(plain: torch.Tensor, kind: type) -> torch.Tensor:
    return torch.Tensor._make_subclass(kind, plain)
