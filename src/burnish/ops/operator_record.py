"""Operator records: shape rule, element-wise or view rule, decomposition and error check of each operator.

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

An operator may have several rules. Without any, it runs its eager kernel, and its type comes from a call of that.
Rules take the operator's own arguments, with the names and defaults of its schema. A shape rule gets a `TensorType` for
each tensor, an element-wise rule a `Scalar`, a decomposition the graph builder and `Value`s. A rule that does not cover
its arguments raises `NoRule` with the reason; the operator is then treated as if it had no rule.

The rules of operators with many arguments take the call as one object, whose attributes the schema names:

    @call_shape("aten.convolution.default")
    def convolution(call):
        return convolved(call.input, call.weight, call.stride)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import torch

from ..concurrency.first_value_cache import once
from ..foundation.torch_private import OpOverload, jit_get_schemas_for_operator
from ..tensors.eager_strides import elementwise_stride, is_dense, preserved_stride
from ..tensors.tensor_types import TensorType
from ..tensors.type_promotion import common_dtype, floating
from ..tensors.views.view_maps import Map, view_type

Promotion = Literal["common", "floating", "bool", "first"]
"""Type promotion of an element-wise operator. common: operands are promoted, and the result has the promoted dtype.
floating: the same, but integers become the default float dtype. bool: operands are promoted, the result is bool.
first: operands are converted to the first one's dtype, which is the result's dtype."""


class NoRule(Exception):
    """A rule does not cover these arguments; the message says why."""


@dataclass(frozen=True, slots=True)
class Pointwise:
    """`rule` computes the result's element from those of the operands, broadcast to one shape."""

    rule: Callable
    promotion: Promotion = "common"
    apart: frozenset[int] = frozenset()
    """Positions of operands that are excluded from promotion and keep their dtype (the condition of `where`)."""
    cost: int = 1
    """The approximate number of cheap operations, for decisions about recomputation."""


@dataclass(frozen=True, slots=True)
class View:
    """The result is the view of the first argument by `maps(type, *args)`."""

    maps: Callable[..., Sequence[Map]]
    is_alias: bool = True
    """False for operators that copy, like `flip`: their maps only say where elements come from."""


@dataclass(slots=True, eq=False)
class Op:
    """An operator. `name` is torch's: "aten.add.Tensor"."""

    name: str
    target: Any = None
    """The eager kernel, an OpOverload; None for our own operators."""
    shape: Callable | None = None
    rule: Pointwise | View | None = None
    decompose: Callable | None = None
    decompose_value: Callable | None = None
    """A decomposition for uses that read only the first of several results: the maximum, not its index."""
    check: Callable | None = None
    """The conditions under which the operator does not raise: see `ops.error_conditions`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts for single passes: `library`, for example, is the kind of library call."""

    def __repr__(self) -> str:
        return self.name


RECORDS: dict[str, Op] = {}


def record(name: str) -> Op:
    """The record of this name, created at first use."""
    found = RECORDS.get(name)
    if found is None:
        found = RECORDS[name] = Op(name)
    return found


def lookup(target: OpOverload) -> Op:
    """The record of an overload; an empty record if the operator has no rules."""
    name = str(target)
    found = RECORDS.get(name)
    if found is not None and found.target is None:
        found.target = target
    elif found is None or found.target is not target:  # an operator of a library may be defined again
        found = RECORDS[name] = Op(name, target)
    return found


def registers(
    names: Sequence[str], field: str, stored: Callable[[Callable], Any] = lambda rule: rule
) -> Callable[[Callable], Callable]:
    """A decorator that writes what is `stored` for a rule into a field of these records."""

    def register(rule: Callable) -> Callable:
        made = stored(rule)
        for name in names:
            setattr(record(name), field, made)
        return rule

    return register


def shape(*names: str) -> Callable[[Callable], Callable]:
    """Register a shape rule: from types to the type of the result, or a tuple of types."""
    return registers(names, "shape")


def decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register a decomposition into simpler operators. The rule gets the builder, then the arguments."""
    return registers(names, "decompose")


class Arguments(SimpleNamespace):
    """The arguments of a call, by their names in the operator's schema; its defaults for those that the call omits."""


@once
def defaults_of(name: str) -> dict[str, Any]:
    """The parameters of an operator, in order. Those without a default have None."""
    packet, _, overload = name.removeprefix("aten.").partition(".")
    schemas = jit_get_schemas_for_operator(f"aten::{packet}")
    schema = next(schema for schema in schemas if (schema.overload_name or "default") == overload)
    return {argument.name: argument.default_value for argument in schema.arguments}


def arguments_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments:
    given = defaults_of(name)
    return Arguments(**{**given, **dict(zip(given, args, strict=False)), **kwargs})


def value_decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register a decomposition of the first result alone, for uses that do not read the other results."""
    return registers(names, "decompose_value")


def registers_call(
    register: Callable[[str], Callable[[Callable], Callable]], names: Sequence[str], before: int = 0
) -> Callable[[Callable], Callable]:
    """A decorator that registers a rule of the call's `Arguments`, and of `before` others before them."""

    def register_all(rule: Callable) -> Callable:
        for name in names:
            register(name)(
                lambda *args, name=name, **kwargs: rule(*args[:before], arguments_of(name, args[before:], kwargs))
            )
        return rule

    return register_all


def call_shape(*names: str) -> Callable[[Callable], Callable]:
    """Register a shape rule that takes the call's `Arguments`."""
    return registers_call(shape, names)


def call_decomposition(*names: str) -> Callable[[Callable], Callable]:
    """Register a decomposition that takes the builder and the call's `Arguments`."""
    return registers_call(decomposition, names, 1)


def call_value_decomposition(*names: str) -> Callable[[Callable], Callable]:
    """The same of the first result alone."""
    return registers_call(value_decomposition, names, 1)


def view(*names: str, is_alias: bool = True) -> Callable[[Callable], Callable]:
    """Register an operator that rearranges its first argument. The rule returns the maps."""

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
    """Register an element-wise operator. Its shape rule is derived from the rule."""

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
    """The types of the tensor operands when eager's kernel runs. On a CPU an operand of another dtype is converted into
    a copy first, and the copy of an expanded tensor is dense."""
    found = []
    for position, arg in enumerate((*args, *kwargs.values())):
        if not isinstance(arg, TensorType):
            continue
        if (
            arg.dtype != dtype
            and rule.promotion != "first"
            and position not in rule.apart
            and arg.device_facts.copies_converted
            and not is_dense(arg)
        ):
            arg = TensorType(arg.shape, preserved_stride(arg), dtype, arg.device)
        found.append(arg)
    if not found:
        raise NoRule("no tensor among the operands")
    return found


def operand_dtype(rule: Pointwise, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype:
    """The dtype that the operands are converted to."""
    counted = [
        arg
        for position, arg in enumerate((*args, *kwargs.values()))
        if position not in rule.apart and isinstance(arg, TensorType)
    ]
    if rule.promotion == "first":
        if not counted:
            raise NoRule("no tensor among the operands")
        return counted[0].dtype
    # Positional numbers count in promotion, even options such as a slope: they do not change the dtype of float tensors
    # but decide it for integers.
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
    """The common broadcast shape."""
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
    """The device of the result: that of the operands with dimensions, if there are any."""
    for tensor in tensors:
        if tensor.shape:
            return tensor.device
    for tensor in tensors:
        if not tensor.is_on_host:
            return tensor.device
    return tensors[0].device


def fresh(like: TensorType, shape: Sequence[int], dtype: torch.dtype | None = None) -> TensorType:
    """The type of a new contiguous result on the same device."""
    return TensorType.contiguous(tuple(shape), dtype or like.dtype, like.device)


def wrapped_dim(dim: int, rank: int) -> int:
    """The nonnegative number of a dimension."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise NoRule(f"dimension {dim} of {rank}")
    return dim + max(rank, 1) if dim < 0 else dim


def masked(found: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    """The results that were asked for, and None for the others."""
    return tuple(each if is_asked else None for each, is_asked in zip(found, mask, strict=True))
