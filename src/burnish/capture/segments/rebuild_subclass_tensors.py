"""Templates of tensors of subclasses: rebuilt around the graph's plain tensors.

t0 = make_wrapper()                    as the program made it: class, size, strides, dtype
t0.__dict__['q'] = G[0]                the inner tensors, and other attributes
t1 = as_subclass(G[1], Tagged)         one without rules of dispatch shows a plain tensor's memory
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...foundation.torch_private import (
    functionalize_unsafe_set,
    len_torch_dispatch_stack,
    make_subclass,
    make_wrapper_subclass,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
    set_grad_enabled,
)
from ..engine.break_signals import Unrebuildable
from ..guards.tensor_metadata import WithoutRules, facts_of


def build_subclass(to: Any, value: torch.Tensor) -> str:
    subclasses = to.tracer.subclasses
    wrapper, shown = subclasses.wrapper(value), subclasses.shown_by(value)
    if wrapper is None and shown is None:
        raise Unrebuildable(value)
    if wrapper is None:
        again = detached_again if subclasses.is_detached(value) else torch.Tensor.as_subclass
        return to.name(value, f"{to.constant(again)}({to.build(shown)}, {to.constant(type(value))})")
    maker: Any = functools.partial(make_wrapper_subclass, *wrapper[1], **wrapper[2])
    with WithoutRules():
        view, owner = subclasses.view(value), subclasses.storage_owner(value)
        if is_changed(value, maker()) or value._is_view() and (view is None or owner not in (None, view.args[0])):
            raise Unrebuildable(value)
    if view is None:
        made = f"{to.constant(maker)}()"
        return to.name(value, made if owner is None else f"{to.constant(on_storage_of)}({to.build(owner)}, {made})")
    marker: Any = functools.partial(
        marked_as_view, view.operator, maker, view.has_gradients, owner is not None, view.place
    )
    given = ", ".join(map(to.build, view.args))
    named = "".join(f", {name}={to.build(part)}" for name, part in view.kwargs.items())
    return to.name(value, f"{to.constant(marker)}({given}{named})")


def is_changed(value: torch.Tensor, made: torch.Tensor) -> bool:
    """Whether a wrapper has become something that its constructor does not make."""
    made.__dict__.update(value.__dict__)  # rules may ask them for the size, device or layout
    return value.grad_fn is not None or facts_of(value)[:-1] != facts_of(made)[:-1]  # but for being a view


def on_storage_of(owner: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    functionalize_unsafe_set(made, owner)
    return made


class Answering:
    """An entry of the dispatch stack that gives the result of the next operator."""

    supports_higher_order_operators = False

    def __init__(
        self, maker: Callable[[], torch.Tensor], owner: torch.Tensor | None, place: tuple[int, int] | None = None
    ):
        self.maker, self.owner, self.place = maker, owner, place

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        # Nothing else may refer to it: torch would mark a copy.
        return self.made() if self.place is None else [self.made() for _ in range(self.place[1])]

    def made(self) -> torch.Tensor:
        return self.maker() if self.owner is None else on_storage_of(self.owner, self.maker())


def marked_as_view(
    operator: Any,
    maker: Callable[[], torch.Tensor],
    has_gradients: bool,
    shares: bool,
    place: tuple[int, int] | None,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """A new wrapper that torch marks as a view of the operator's first argument."""
    before, modes = torch.is_grad_enabled(), len_torch_dispatch_stack()
    try:
        set_grad_enabled(has_gradients)
        push_on_torch_dispatch_stack(Answering(maker, args[0] if shares else None, place))
        with WithoutRules():
            made = operator(*args, **kwargs)
            return made if place is None else made[place[0]]
    finally:
        if len_torch_dispatch_stack() > modes:
            pop_torch_dispatch_stack(None)
        set_grad_enabled(before)


def detached_again(plain: torch.Tensor, kind: type) -> torch.Tensor:
    return make_subclass(kind, plain)
