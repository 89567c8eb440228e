"""Templates of tensors of subclasses: made again around the graph's plain tensors.

t0 = make_wrapper()                    as the program made it: class, size, strides, dtype
t0.__dict__['q'] = G[0]                the inner tensors, and other attributes
t1 = as_subclass(G[1], Tagged)         one without rules of dispatch shows a plain tensor's memory
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..guards.tensor_metadata import WithoutRules
from .rebuild_instances import build_attributes
from .unrebuildable_object import Unrebuildable


def build_subclass(to: Any, value: torch.Tensor) -> str:
    subclasses = to.tracer.subclasses
    wrapper, shown = subclasses.wrapper(value), subclasses.shown_by(value)
    if wrapper is None and shown is None:
        raise Unrebuildable(value)
    if wrapper is not None:
        _, args, kwargs = wrapper
        with WithoutRules():
            if is_changed(value, kwargs):
                raise Unrebuildable(value)
        maker: Any = functools.partial(torch.Tensor._make_wrapper_subclass, *args, **kwargs)
        name = to.name(value, f"{to.constant(maker)}()")
    else:
        again = detached_again if id(value) in subclasses.detached else shown_again
        name = to.name(value, f"{to.constant(again)}({to.build(shown)}, {to.constant(type(value))})")
    build_attributes(to, value, name)
    return name


def is_changed(value: torch.Tensor, kwargs: dict) -> bool:
    """Whether a wrapper has become something that its constructor does not make: a view of another one, or part of an
    autograd graph."""
    return (
        value._is_view()
        or value.grad_fn is not None
        or value.requires_grad != bool(kwargs.get("requires_grad", False))
        or value.is_inference() != torch.is_inference_mode_enabled()
    )


def shown_again(plain: torch.Tensor, kind: type) -> torch.Tensor:
    with WithoutRules():
        return torch.Tensor.as_subclass(plain, kind)


def detached_again(plain: torch.Tensor, kind: type) -> torch.Tensor:
    return torch.Tensor._make_subclass(kind, plain)
