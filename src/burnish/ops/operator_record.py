"""What the compiler knows of an operator: one record each, the only place that names it.

    @pointwise("aten.hardswish.default")
    def hardswish(x):
        return x * minimum(maximum(x + 3, 0), 6) / 6

    @view("aten.t.default")
    def t(x):
        return [Permute((1, 0))] if x.ndim == 2 else []

    @shape("aten.mm.default")
    def mm(a, b):
        return fresh(a, (a.shape[0], b.shape[1]))

    @decomposition("aten.silu_backward.default")
    def silu_backward(g, grad, x):
        ...

An operator may have several of them. One that has none is run by its eager kernel, on a type found by asking torch.
Rules take the operator's own arguments, as its schema names and defaults them: a shape rule sees a `TensorType` for
each tensor, an element-wise rule a `Scalar`, a decomposition the graph builder and `Value`s. A rule that does not cover
its arguments raises `NoRule` with the reason; then the operator is treated as if it had none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from ..tensors.eager_strides import elementwise_stride, is_dense, preserved_stride
from ..tensors.tensor_types import TensorType
from ..tensors.type_promotion import common_dtype, floating, number_dtype
from ..tensors.view_maps import Map, view_type

Promotion = Literal["common", "floating", "bool", "first"]
"""How an element-wise operator finds its dtypes. common: operands are promoted, the result is the same. floating: the
same, and integers become the default float dtype. bool: operands are promoted, the result is bool. first: operands are
converted to the first one's dtype, the result has it."""


class NoRule(Exception):
    """A rule does not cover these arguments; the message says which."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The result's element is `rule` of the operands' elements, all broadcast to one shape."""

    rule: Callable
    promotion: Promotion = "common"
    apart: frozenset[int] = frozenset()
    """Positions of operands that take no part in promotion and keep their dtype (the condition of `where`)."""
    cost: int = 1
    """About how many cheap operations it is, for deciding what may be computed twice."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of the loop language over `dims(x, *args)`; `keeps(...)` says whether they stay as size 1."""

    op: str
    dims: Callable
    keeps: Callable
    dtype: Callable
    """Of the value that is reduced: operands are converted before."""


@dataclass(frozen=True, slots=True)
class View:
    """The result shows the first argument through `maps(type, *args)`."""

    maps: Callable[..., Sequence[Map]]
    is_alias: bool = True
    """False for operators that copy, like `flip`: there the maps only say where elements come from."""


@dataclass(slots=True, eq=False)
class Op:
    """An operator. `name` is torch's: "aten.add.Tensor"."""

    name: str
    target: Any = None
    """Its eager kernel, an OpOverload; None for our own operators."""
    shape: Callable | None = None
    rule: Pointwise | Reduction | View | None = None
    decompose: Callable | None = None
    decompose_value: Callable | None = None
    """The same where only the first of several results is read: of a maximum the value, not where it stands."""
    check: Callable | None = None
    """Whether it may raise for some data, and for which: see `ops.data_dependent_errors`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What single passes want to know of it: `library` its kind of library call, for one."""

    def __repr__(self) -> str:
        return self.name


RECORDS: dict[str, Op] = {}


def record(name: str) -> Op:
    """The record of this name, made when it is first asked for."""
    found = RECORDS.get(name)
    if found is None:
        found = RECORDS[name] = Op(name)
    return found


def lookup(target: torch._ops.OpOverload) -> Op:
    """The record of an ATen overload; an empty one for an operator that has no rules."""
    name = str(target)
    found = RECORDS.get(name)
    if found is None:
        found = RECORDS[name] = Op(name, target)
    elif found.target is None:
        found.target = target
    return found


def shape(*names: str) -> Callable[[Callable], Callable]:
    """Register a shape rule: from types to the type of the result, or a tuple of types."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).shape = rule
        return rule

    return register


def decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register how an operator is written in simpler ones. The rule gets the builder, then the arguments."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).decompose = rule
        return rule

    return register


def value_decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register how an operator's first result is written in simpler ones, for where nobody reads the others."""

    def register(rule: Callable) -> Callable:
        for name in names:
            record(name).decompose_value = rule
        return rule

    return register


def view(*names: str, is_alias: bool = True) -> Callable[[Callable], Callable]:
    """Register an operator that rearranges its first argument: the rule gives the maps for a type and the arguments."""

    def register(maps: Callable) -> Callable:
        def result(x: TensorType, *args: Any, **kwargs: Any) -> TensorType:
            steps = tuple(maps(x, *args, **kwargs))
            found = view_type(steps, x)
            if found is None:
                raise NoRule("no strides can express this view")
            return found

        for name in names:
            made = record(name)
            made.rule = View(maps, is_alias)
            if is_alias:
                made.shape = result
        return maps

    return register


def pointwise(
    *names: str, promotion: Promotion = "common", apart: Sequence[int] = (), cost: int = 1
) -> Callable[[Callable], Callable]:
    """Register an element-wise operator. Its shape rule follows."""

    def register(rule: Callable) -> Callable:
        made = Pointwise(rule, promotion, frozenset(apart), cost)
        for name in names:
            record(name).rule = made
            record(name).shape = lambda *args, **kwargs: pointwise_type(made, args, kwargs)
        return rule

    return register


def pointwise_type(rule: Pointwise, args: Sequence[Any], kwargs: dict[str, Any]) -> TensorType:
    """The type of an element-wise result."""
    computed = operand_dtype(rule, args, kwargs)
    tensors = computed_operands(rule, args, kwargs, computed)
    dtype = torch.bool if rule.promotion == "bool" else computed
    result_shape = broadcast_shape([tensor.shape for tensor in tensors])
    return TensorType(result_shape, elementwise_stride(result_shape, tensors), dtype, result_device(tensors))


def computed_operands(
    rule: Pointwise, args: Sequence[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> list[TensorType]:
    """The tensors among the operands as they lie when eager computes with them: what is converted first, on a CPU, is a
    copy by then, and one of an expanded tensor lies dense."""
    found = []
    for position, arg in enumerate((*args, *kwargs.values())):
        if not isinstance(arg, TensorType):
            continue
        if (
            arg.dtype != dtype
            and rule.promotion != "first"
            and position not in rule.apart
            and arg.device.type == "cpu"
            and not is_dense(arg)
        ):
            arg = TensorType(arg.shape, preserved_stride(arg), dtype, arg.device)
        found.append(arg)
    if not found:
        raise NoRule("no tensor among the operands")
    return found


def operand_dtype(rule: Pointwise, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype:
    """What the operands are converted to."""
    counted = [
        arg
        for position, arg in enumerate((*args, *kwargs.values()))
        if position not in rule.apart and isinstance(arg, TensorType)
    ]
    if rule.promotion == "first":
        if not counted:
            raise NoRule("no tensor among the operands")
        return counted[0].dtype
    # Numbers count as operands where they stand for one; an option like `approximate="none"` or a slope does not
    # change what a tensor of floats is computed in, and for integers it decides.
    numbers = [
        arg
        for position, arg in enumerate(args)
        if position not in rule.apart and isinstance(arg, (bool, int, float, complex))
    ]
    if not counted and not numbers:
        raise NoRule("no tensor among the operands")
    found = common_dtype([*counted, *numbers])
    return floating(found) if rule.promotion == "floating" else found


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all broadcast to."""
    first = shapes[0]
    if all(other == first for other in shapes):
        return first
    rank = max(map(len, shapes))
    found = [1] * rank
    for other in shapes:
        for k, size in enumerate(other, rank - len(other)):
            if size != 1:
                if found[k] not in (1, size):
                    raise NoRule(f"shapes {shapes} do not broadcast")
                found[k] = size
    return tuple(found)


def result_device(tensors: Sequence[TensorType]) -> torch.device:
    """Where the result lies: with the operands that have dimensions, if there are any."""
    for tensor in tensors:
        if tensor.shape:
            return tensor.device
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return tensor.device
    return tensors[0].device


def fresh(like: TensorType, shape: Sequence[int], dtype: torch.dtype | None = None) -> TensorType:
    """A contiguous result on the same device."""
    return TensorType.contiguous(tuple(shape), dtype or like.dtype, like.device)


def wrapped_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise NoRule(f"dimension {dim} of {rank}")
    return dim + max(rank, 1) if dim < 0 else dim


__all__ = [
    "NoRule",
    "Op",
    "Pointwise",
    "RECORDS",
    "Reduction",
    "TensorType",
    "View",
    "broadcast_shape",
    "decomposition",
    "fresh",
    "lookup",
    "number_dtype",
    "pointwise",
    "record",
    "result_device",
    "shape",
    "view",
    "wrapped_dim",
]
