"""Expands operators over lists of tensors into operators over single tensors during the trace.

    aten._foreach_mul_.Scalar [a, b], 0.9      =>      aten.mul_.Scalar a, 0.9
                                                       aten.mul_.Scalar b, 0.9

Optimizers with `foreach=True`, gradient clipping and weight averaging call `_foreach_` operators, which do the same as
the operators of that name on each tensor. The `_fused_` optimizer steps (`fused=True`) and the two operators of
`torch.amp.GradScaler` have their own rules below, which compute what the eager kernels compute. In the graph all of
them can be fused, like steps written with single tensors.

The trace handles unknown operators: it calls their eager kernel or says why that is not supported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...foundation.torch_private import OpOverload
from ...tensors.dtypes import HALVES

aten = torch.ops.aten
PREFIX = "_foreach_"
NAMESAKES = {
    "maximum.Scalar": "clamp_min",
    "minimum.Scalar": "clamp_max",
    "norm": "linalg_vector_norm",
    "maximum.ScalarList": "clamp_min",
    "minimum.ScalarList": "clamp_max",
}
"""Names of single-tensor operators that differ."""
WITHOUT = {"powsum", "mm"}
"""Operators without a single-tensor counterpart, or with one that sums differently."""
BY_NAME = {
    "addcmul": {"value": "value", "scalars": "value"},
    "addcdiv": {"value": "value", "scalars": "value"},
    "norm": {"dtype": "dtype"},
}
"""Keyword-only arguments of the single-tensor operator, and their names there."""


@functools.cache
def rule_for(func: OpOverload) -> Callable | None:
    """The replacement of an operator over lists of tensors; None for any other operator."""
    name, _, overload = func.name().removeprefix("aten::").partition(".")
    if name in RULES:
        return RULES[name]
    if not name.startswith(PREFIX) or func.namespace != "aten":
        return None
    base = name.removeprefix(PREFIX)
    is_written, base = base.endswith("_"), base.removesuffix("_")
    if base in WITHOUT or (base, overload) in (("addcdiv", "Tensor"), ("addcmul", "Tensor")):
        return None  # these two overloads read numbers from a tensor
    namesake = NAMESAKES.get(f"{base}.{overload}", NAMESAKES.get(base, base))
    packet = getattr(aten, namesake + "_" * is_written, None)
    if packet is None and is_written and hasattr(aten, namesake):
        packet = functools.partial(stored, getattr(aten, namesake))
    return None if packet is None else functools.partial(for_each, func, packet, is_written, BY_NAME.get(base, {}))


def for_each(
    func: OpOverload, one: Callable, is_written: bool, by_name: dict[str, str], *args: Any, **kwargs: Any
) -> Any:
    """Calls `one` with the first element of each list, then the second, and so on. Other arguments are shared."""
    arguments = func._schema.arguments
    named = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
    lists = {a.name for a in arguments if "List[" in str(a.type)}
    count = next(len(named[a.name]) for a in arguments if a.name in lists)
    positions = [a.name for a in arguments if not a.kwarg_only and a.name not in by_name]
    made = []
    for k in range(count):
        given = {name: value[k] if name in lists else value for name, value in named.items()}
        placed = [given.pop(name) for name in positions if name in given]
        made.append(one(*placed, **{by_name.get(name, name): value for name, value in given.items()}))
    return None if is_written else made


def stored(function: Callable, tensor: Any, *args: Any, **kwargs: Any) -> None:
    """Writes the result of an operator that has no in-place form."""
    aten.copy_(tensor, function(tensor, *args, **kwargs))


# ---- optimizer steps, as the eager kernels compute them


def fused(
    rule: Callable,
    params: list,
    grads: list,
    *states: list,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
    **options: Any,
) -> None:
    """Calls a rule below for each parameter. It gets the gradient to follow, the old value and the states of the
    parameter (some lists are empty), and returns the new value."""
    for k, (param, grad) in enumerate(zip(params, grads, strict=True)):
        step = SkippableWrites(found_inf)
        change, old = unscaled(step, grad, grad_scale, maximize), as_compute_dtype(param)
        step.write(param, rule(step, change, old, *(state[k] if state else None for state in states), **options))


def decayed(change: Any, old: Any, weight_decay: float) -> Any:
    return aten.add(change, old, alpha=weight_decay) if weight_decay else change


def sgd(
    step: SkippableWrites,
    change: Any,
    old: Any,
    buffer: Any,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    is_first_step: bool,
) -> Any:
    change = decayed(change, old, weight_decay)
    if momentum:
        kept = change
        if not is_first_step:
            kept = aten.add(aten.mul(as_compute_dtype(buffer), momentum), change, alpha=1 - dampening)
        step.write(buffer, kept)
        change = aten.add(change, kept, alpha=momentum) if nesterov else kept
    return aten.sub(old, aten.mul(change, lr))


def adam(
    is_decoupled: bool,
    step: SkippableWrites,
    change: Any,
    old: Any,
    mean: Any,
    square: Any,
    largest: Any,
    count: Any,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
) -> Any:
    """Adam, and AdamW where the decay `is_decoupled`. The count is already incremented."""
    if weight_decay and is_decoupled:
        old = aten.sub(old, aten.mul(aten.mul(old, weight_decay), lr))
    else:
        change = decayed(change, old, weight_decay)
    new_mean = aten.lerp(as_compute_dtype(mean), change, 1 - beta1)
    spread = aten.addcmul(aten.mul(as_compute_dtype(square), beta2), change, change, value=1 - beta2)
    step.write(mean, new_mean)
    step.write(square, spread)
    if amsgrad:
        spread = aten.maximum(as_compute_dtype(largest), spread)
        step.write(largest, spread)
    correction, root = (left_to_come(beta, count) for beta in (beta1, beta2))
    spread = aten.add(aten.div(aten.sqrt(spread), aten.sqrt(root)), eps)
    return aten.sub(old, aten.div(aten.mul(new_mean, multiply_in_f64(aten.reciprocal(correction), lr)), spread))


def adagrad(
    step: SkippableWrites,
    change: Any,
    old: Any,
    squares: Any,
    count: Any,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
) -> Any:
    change = decayed(change, old, weight_decay)
    total = aten.addcmul(as_compute_dtype(squares), change, change)
    step.write(squares, total)
    earlier = aten.sub(aten.to(count, torch.float64), 1)
    rate = multiply_in_f64(aten.reciprocal(aten.add(aten.mul(earlier, lr_decay), 1)), lr)
    return aten.sub(old, aten.div(aten.mul(change, rate), aten.add(aten.sqrt(total), eps)))


class SkippableWrites:
    """The writes of one step, which are skipped where `GradScaler` found an infinite gradient."""

    def __init__(self, found_inf: Any):
        self.skips = None if found_inf is None else aten.eq(aten.squeeze(found_inf), 1)

    def write(self, tensor: Any, value: Any) -> None:
        value = aten.to(value, tensor.dtype)
        aten.copy_(tensor, value if self.skips is None else aten.where(self.skips, tensor, value))


def unscaled(step: SkippableWrites, grad: Any, grad_scale: Any, maximize: bool) -> Any:
    """The gradient to follow. As in eager, a scaled gradient is stored unscaled."""
    change = as_compute_dtype(grad)
    if grad_scale is not None:
        change = aten.div(change, aten.squeeze(grad_scale))
        step.write(grad, change)
    return aten.neg(change) if maximize else change


def as_compute_dtype(x: Any) -> Any:
    """The dtype that the kernels compute in: half precisions are only for storage."""
    return aten.to(x, torch.float32) if x.dtype in HALVES else x


def left_to_come(beta: float, count: Any) -> Any:
    """The bias correction of a running mean after `count` values, in double precision: `1 - beta ** count`."""
    return aten.rsub(aten.pow(beta, aten.to(count, torch.float64)), 1)


def multiply_in_f64(x: Any, rate: Any) -> Any:
    """The product with a tensor in double precision. The rate may be a live scalar."""
    return aten.mul(x, aten.to(rate, torch.float64) if isinstance(rate, torch.Tensor) else rate)


# ---- torch.amp.GradScaler


def check_and_unscale(grads: Iterable, found_inf: Any, inv_scale: Any) -> None:
    for grad in grads:
        wrong = aten.to(aten.any(aten.logical_not(aten.isfinite(grad))), torch.float32)
        aten.copy_(found_inf, aten.maximum(found_inf, wrong))
        aten.mul_(grad, aten.squeeze(inv_scale))


def update_scale(scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int) -> Any:
    found, count = aten.ne(found_inf, 0), aten.add(tracker, 1)
    is_due = aten.eq(count, interval)
    grown = aten.mul(scale, growth)
    grown = aten.where(aten.logical_and(is_due, aten.isfinite(grown)), grown, scale)
    aten.copy_(tracker, aten.where(aten.logical_or(found, is_due), aten.zeros_like(count), count))
    aten.copy_(scale, aten.where(found, aten.mul(scale, backoff), grown))
    return scale


RULES: dict[str, Callable] = {
    "_fused_sgd_": functools.partial(fused, sgd),
    "_fused_adam_": functools.partial(fused, functools.partial(adam, False)),
    "_fused_adamw_": functools.partial(fused, functools.partial(adam, True)),
    "_fused_adagrad_": functools.partial(fused, adagrad),
    "_amp_foreach_non_finite_check_and_unscale_": check_and_unscale,
    "_amp_update_scale_": update_scale,
}
