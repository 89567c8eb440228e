"""Registration of element-wise operators with the dtypes that eager accepts, and application of their rules.

    @elementwise("aten.hardswish.default", takes="f", cost=6)
    def hardswish(x):
        return x * clamped(x + 3, 0, 6) / 6

This extends `pointwise`. Operands that eager rejects (a bool subtracted, a float shifted) have no shape rule, so the
eager kernel is called and raises its own error. A rule with a parameter `site` gets its context: half precisions are
computed in f32 with numbers rounded to half first, and the mean of a loss divides by a count.

Passes call `element` to compute the element of the result from the elements of the operands:

    stored operand ── common dtype ── compute dtype ── rule ── dtype of the result
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tensors.dtypes import BITS, FLOATS, INTEGERS, KINDS, LARGEST, NAMES, UNSIGNED, WIDE
from ...tensors.eager_strides import elementwise_stride, preserved_stride
from ...tensors.tensor_types import TensorType, contiguous_stride
from ...tensors.type_promotion import common_dtype, compute_dtype
from ..operator_record import (
    NoRule,
    Op,
    Pointwise,
    Promotion,
    broadcast_shape,
    computed_operands,
    operand_dtype,
    pointwise,
    record,
    result_device,
    shape,
)
from ..scalar_ir import Scalar, cast, const, select


@dataclass(frozen=True, slots=True)
class Site:
    """The context of one use of a rule. Without it, a rule assumes that operands are stored in their compute dtype."""

    dtype: str
    """The dtype that operands are converted to. If it is a half precision, the rule computes in f32."""
    numel: int
    """The number of elements of the result."""


@dataclass(frozen=True, slots=True)
class ResultType:
    """The shape rule of an element-wise operator: the type of its result, or `NoRule` if eager would raise."""

    pointwise: Pointwise
    takes: str
    """The letters of the accepted dtypes."""
    order: Sequence[int] | None
    """The order of precedence of the tensors for the result's strides, if it differs from the argument order."""
    like: int | None
    """The tensor whose layout the result copies, if the layout does not depend on all operands."""
    contiguous: bool
    wraps: bool
    """Whether eager wraps number operands into tensors without dimensions, which affects the result's strides."""
    why_not: Callable[..., str | None] | None
    """Takes types and numbers and returns why else eager would raise."""

    def __call__(self, *args: Any, **kwargs: Any) -> TensorType:
        dtype = operand_dtype(self.pointwise, args, kwargs)
        tensors = computed_operands(self.pointwise, args, kwargs, dtype)
        kind = KINDS.get(NAMES.get(dtype, ""))
        if kind is None or kind not in self.takes:
            raise NoRule(f"{dtype} operands")
        for number in (*args, *kwargs.values()):
            if isinstance(number, (int, float)) and not holds(NAMES[dtype], number):
                raise NoRule(f"{number} does not fit into {dtype}")
        if self.why_not is not None and (reason := self.why_not(*args, **kwargs)) is not None:
            raise NoRule(reason)
        sizes = broadcast_shape([tensor.shape for tensor in tensors])
        stride = self.stride(sizes, tensors, any(isinstance(arg, (int, float, complex)) for arg in args))
        is_bool = self.pointwise.promotion == "bool"
        return TensorType(sizes, stride, torch.bool if is_bool else dtype, result_device(tensors))

    def stride(self, sizes: tuple[int, ...], tensors: list[TensorType], has_number: bool) -> tuple[int, ...]:
        if self.like is not None:
            if tensors[self.like].shape != sizes:
                raise NoRule("the result is larger than what it is a copy of")
            return preserved_stride(tensors[self.like])
        if self.contiguous:
            return contiguous_stride(sizes)
        if self.order is not None and len(self.order) == len(tensors):
            tensors = [tensors[k] for k in self.order]
        if self.wraps and (has_number or len(tensors) < 2):
            tensors = [*tensors, TensorType((), (), torch.bool)]
        return elementwise_stride(sizes, tensors)


def elementwise(
    *names: str,
    promotion: Promotion = "common",
    apart: Sequence[int] = (),
    cost: int = 1,
    takes: str = "bif",
    order: Sequence[int] | None = None,
    like: int | None = None,
    contiguous: bool = False,
    wraps: bool = False,
    wide: int | None = None,
    fits: bool = False,
    why_not: Callable[..., str | None] | None = None,
) -> Callable[[Callable], Callable]:
    """Register an element-wise operator. The options are those of `ResultType`.

    With `fits`, eager raises an error for a number operand that does not fit into the dtype. With others it wraps.

    `wide` is the position of an operand that is not rounded to a half precision if it is a number or has no
    dimensions. On a CPU the other operand is rounded even if it is a number.
    """

    def register(rule: Callable) -> Callable:
        pointwise(*names, promotion=promotion, apart=apart, cost=cost)(rule)
        made = record(names[0]).rule
        assert isinstance(made, Pointwise)
        shape(*names)(ResultType(made, takes, order, like, contiguous, wraps, why_not))
        is_told = "site" in rule.__code__.co_varnames[: rule.__code__.co_argcount + rule.__code__.co_kwonlyargcount]
        for name in names:
            record(name).notes.update(site=is_told, wide=wide, fits=fits)
        return rule

    return register


def elementwise_shape(
    *names: str,
    promotion: Promotion = "common",
    apart: Sequence[int] = (),
    takes: str = "bif",
    wraps: bool = False,
    why_not: Callable[..., str | None] | None = None,
) -> Callable[..., TensorType]:
    """Register and return the shape rule of an element-wise operator that has no scalar expression."""
    made = ResultType(Pointwise(no_rule, promotion, frozenset(apart)), takes, None, None, False, wraps, why_not)
    shape(*names)(made)
    return made


def no_rule(*args: Any, **kwargs: Any) -> Scalar:
    raise NoRule("no scalar expression gives it")


def element(
    op: Op,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    types: Sequence[Any],
    result: TensorType,
    numbers: Sequence[str] = (),
) -> Scalar:
    """The element of the result. For each tensor, the arguments have a `Scalar` in its stored dtype.

    `types` are the positional arguments with types in place of tensors. Tensors among `kwargs` keep their dtype.
    Live scalars may be `Scalar`s as well: their entry in `types` is a number, or `numbers` names them. They are
    converted to the compute dtype.
    """
    rule = op.rule
    assert isinstance(rule, Pointwise)
    dtype = operand_dtype(rule, types, {})
    stored, target = NAMES.get(dtype, ""), NAMES.get(result.dtype, "")
    if stored not in BITS or target not in BITS:
        raise NoRule(f"{result.dtype} of {dtype} operands")
    computed = NAMES[compute_dtype(dtype)]
    operands, wide = list(args), op.notes.get("wide")
    rounds_first = wide is not None and result.device_facts.rounds_numbers
    for k, arg in enumerate(args):
        if isinstance(arg, Scalar) and not isinstance(types[k], TensorType):
            if op.notes.get("fits"):
                refuse_overflow(arg, stored)
            is_rounded = op.notes.get("site") or rounds_first and k != wide
            operands[k] = converted(converted(arg, stored) if is_rounded else arg, computed)
        elif isinstance(arg, Scalar) and k not in rule.apart:
            is_wide = k == wide and not types[k].shape
            operands[k] = converted(arg if is_wide else converted(arg, stored), computed)
        elif rounds_first and k != wide and stored in WIDE and isinstance(arg, (int, float)):
            operands[k] = rounded(arg, stored)
    for name in numbers:
        refuse_overflow(kwargs[name], stored)
    if numbers:
        kwargs = kwargs | {name: converted(kwargs[name], computed) for name in numbers}
    more = {**kwargs, "site": Site(stored, result.numel)} if op.notes.get("site") else kwargs
    return converted(rule.rule(*operands, **more), target)


def holds(dtype: str, number: float) -> bool:
    """Whether a number is in the range of a dtype. If not, some kernels wrap around and others raise.

    Eager lets negative integers wrap around in unsigned dtypes, and accepts infinities for float dtypes.
    """
    if dtype in INTEGERS:
        if not math.isfinite(number):
            return False
        bits = BITS[dtype]
        if dtype in UNSIGNED:
            largest = (1 << bits) - 1
            return (0 if isinstance(number, float) else -largest) <= number <= largest
        return -(1 << (bits - 1)) <= int(number) < 1 << (bits - 1)
    return dtype not in LARGEST or not math.isfinite(number) or abs(number) <= LARGEST[dtype]


def refuse_overflow(number: Scalar, dtype: str) -> None:
    """A live scalar is converted to a dtype that does not hold every such number: eager raises an error for some."""
    is_narrow = dtype in INTEGERS and (number.dtype in FLOATS or BITS[dtype] < 64) or dtype == "f16"
    if is_narrow and number.op != "const":
        raise NoRule(f"a number that may not fit into {dtype}")


def why_not_alike(*operands: Any, **options: Any) -> str | None:
    """For kernels whose operands must all have the same dtype."""
    dtypes = {operand.dtype for operand in operands if isinstance(operand, TensorType)}
    return "operands of several dtypes" if len(dtypes) > 1 else None


def why_not_half(*operands: Any) -> str | None:
    """For kernels that do not support half precisions."""
    dtype = common_dtype([operand for operand in operands if operand is not None])
    return f"{dtype} operands" if NAMES.get(dtype) in WIDE else None


def converted(x: Scalar, dtype: str) -> Scalar:
    """The cast as in eager: to half precisions through f32, from floats to small integers through i32, which wraps."""
    if dtype in WIDE and x.dtype not in (dtype, "f32"):
        x = cast(x, "f32")
    elif dtype in INTEGERS and BITS[dtype] < 32 and x.dtype in FLOATS:
        x = cast(x, "i32")
    return x.ne(0) if dtype == "b8" and x.dtype != "b8" else cast(x, dtype)


def rounded(value: float, dtype: str) -> float:
    """A number rounded to the precision of the dtype."""
    if dtype not in WIDE and dtype != "f32":
        return value
    value = float(value)
    try:
        single = struct.pack("<f", value)
        if dtype == "f32":
            return struct.unpack("<f", single)[0]
        if dtype == "f16":
            return struct.unpack("<e", struct.pack("<e", struct.unpack("<f", single)[0]))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    bits = struct.unpack("<I", single)[0]
    if value == value:  # for NaN the carry could turn the upper half into an infinity
        bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def operand(value: Scalar | float, dtype: str, site: Site | None = None) -> Scalar:
    """A number as a constant of `dtype`; with a site, rounded first to the site's dtype."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, complex):
        raise NoRule("a complex number")
    return const(rounded(value, site.dtype) if site is not None else value, dtype)


def paired(x: Scalar | float, y: Scalar | float, site: Site | None = None) -> tuple[Scalar, Scalar]:
    """Two operands as scalars. One of them may be a number."""
    dtype = x.dtype if isinstance(x, Scalar) else y.dtype  # type: ignore[union-attr]
    return operand(x, dtype, site), operand(y, dtype, site)


def clamped(x: Scalar, low: Scalar | float | None, high: Scalar | float | None) -> Scalar:
    """Clamp between bounds that are not NaN; the upper bound wins. NaN and -0.0 are unchanged, as in eager."""
    if low is not None:
        x = select(x < low, low, x)
    if high is not None:
        x = select(x > high, high, x)
    return x


def refuse_nan(*bounds: Any) -> None:
    """For kernels where what a bound of NaN means depends on the dtype, or on the place of the element."""
    if any([isinstance(bound, float) and math.isnan(bound) for bound in bounds]):
        raise NoRule("a bound that is NaN")


def is_float(x: Scalar) -> bool:
    return x.dtype in FLOATS


def truth(x: Scalar) -> Scalar:
    """Whether x is not zero."""
    return x if x.dtype == "b8" else x.ne(0)
