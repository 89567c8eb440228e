"""Element-wise records that know which dtypes eager takes, and the one way to apply their rules.

    @elementwise("aten.hardswish.default", takes="f", cost=6)
    def hardswish(x):
        return x * clamped(x + 3, 0, 6) / 6

`pointwise` with two things more. What eager refuses (a bool subtracted, a float shifted) has no shape either: asking
torch then raises eager's own error. And a rule with a parameter `site` is told where it is used: half precisions are
computed in f32, but a number that meets them is rounded to them first, and the mean of a loss divides by a count.

`element` is how passes get from elements of operands to the element of the result:

    stored operand ── common dtype ── compute dtype ── rule ── dtype of the result
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tensors.eager_strides import elementwise_stride, preserved_stride
from ...tensors.tensor_types import NAMES, TensorType, contiguous_stride
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
from ..scalar_ir import BITS, FLOATS, INTEGERS, Scalar, cast, const, select

KINDS = {"b8": "b", "c64": "c", "c128": "c"} | dict.fromkeys(INTEGERS, "i") | dict.fromkeys(FLOATS, "f")
"""The letter of a dtype in `takes`: b bool, i integer, f floating, c complex."""

HALF = frozenset(("f16", "bf16"))
SMALL_INTEGERS = frozenset(("u8", "i8", "i16"))
LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


@dataclass(frozen=True, slots=True)
class Site:
    """One use of a rule. A rule that is used without one takes its operands to be stored as they are computed."""

    dtype: str
    """What the operands are converted to; the rule sees f32 where this is a half precision."""
    numel: int
    """The number of elements of the result."""


@dataclass(frozen=True, slots=True)
class ResultType:
    """The shape rule of an element-wise operator: its result's type, or `NoRule` where eager would raise."""

    pointwise: Pointwise
    takes: str
    """The letters of the dtypes that it is computed in."""
    order: Sequence[int] | None
    """In which order the tensors decide the layout, where it is not that of the arguments."""
    like: int | None
    """The tensor that the result is a copy of, layout and all, where the operands do not decide together."""
    contiguous: bool
    wraps: bool
    """Numbers that stand for operands count as tensors without dimensions, as eager makes them; the layout shows it."""
    why_not: Callable[..., str | None] | None
    """Sees types and numbers and says what else eager will complain of."""

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
    why_not: Callable[..., str | None] | None = None,
) -> Callable[[Callable], Callable]:
    """Register an element-wise operator; what the options say of its result stands at `ResultType`.

    `wide` is the position of an operand that is not rounded to a half precision if it is a number, or has no
    dimensions. The other one is, on a CPU, also where it is a number.
    """

    def register(rule: Callable) -> Callable:
        pointwise(*names, promotion=promotion, apart=apart, cost=cost)(rule)
        made = record(names[0]).rule
        assert isinstance(made, Pointwise)
        shape(*names)(ResultType(made, takes, order, like, contiguous, wraps, why_not))
        is_told = "site" in rule.__code__.co_varnames[: rule.__code__.co_argcount + rule.__code__.co_kwonlyargcount]
        for name in names:
            record(name).notes.update(site=is_told, wide=wide)
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
    """The shape rule of an element-wise operator whose element no scalar expression gives."""
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
    """The element of the result, from a `Scalar` in its stored dtype for each tensor of the arguments.

    `types` are the positional arguments once more, with types for tensors. Tensors among `kwargs` keep their dtype.
    Python numbers may be scalars as well: their type is a number, or `numbers` names them. They are seen in the dtype
    of the computation.
    """
    rule = op.rule
    assert isinstance(rule, Pointwise)
    dtype = operand_dtype(rule, types, {})
    stored, target = NAMES.get(dtype, ""), NAMES.get(result.dtype, "")
    if KINDS.get(stored, "c") == "c" or KINDS.get(target, "c") == "c":
        raise NoRule(f"{result.dtype} of {dtype} operands")
    computed = NAMES[compute_dtype(dtype)]
    operands, wide = list(args), op.notes.get("wide")
    rounds_first = wide is not None and result.device.type == "cpu"  # a GPU's kernels round neither number
    for k, arg in enumerate(args):
        if isinstance(arg, Scalar) and not isinstance(types[k], TensorType):
            is_rounded = op.notes.get("site") or rounds_first and k != wide
            operands[k] = converted(converted(arg, stored) if is_rounded else arg, computed)
        elif isinstance(arg, Scalar) and k not in rule.apart:
            is_wide = k == wide and not types[k].shape
            operands[k] = converted(arg if is_wide else converted(arg, stored), computed)
        elif rounds_first and k != wide and stored in HALF and isinstance(arg, (int, float)):
            operands[k] = rounded(arg, stored)
    if numbers:
        kwargs = kwargs | {name: converted(kwargs[name], computed) for name in numbers}
    more = {**kwargs, "site": Site(stored, result.numel)} if op.notes.get("site") else kwargs
    return converted(rule.rule(*operands, **more), target)


def holds(dtype: str, number: float) -> bool:
    """Whether a dtype has room for a number; where it has not, some kernels wrap around and some raise.

    Eager lets integers below zero wrap around in u8, and infinities of any dtype pass.
    """
    if dtype in INTEGERS:
        if not math.isfinite(number):
            return False
        bits = BITS[dtype]
        if dtype == "u8":
            return (0 if isinstance(number, float) else -255) <= number <= 255
        return -(1 << (bits - 1)) <= int(number) < 1 << (bits - 1)
    return dtype not in LARGEST or not math.isfinite(number) or abs(number) <= LARGEST[dtype]


def why_not_alike(*operands: Any, **options: Any) -> str | None:
    """For kernels that take operands of one dtype only."""
    dtypes = {operand.dtype for operand in operands if isinstance(operand, TensorType)}
    return "operands of several dtypes" if len(dtypes) > 1 else None


def why_not_half(*operands: Any) -> str | None:
    """For kernels that half precisions have none of."""
    dtype = common_dtype([operand for operand in operands if operand is not None])
    return f"{dtype} operands" if NAMES.get(dtype) in HALF else None


def converted(x: Scalar, dtype: str) -> Scalar:
    """The cast as eager does it: halves through f32, floats to small integers through i32, which wraps."""
    if dtype in HALF and x.dtype not in (dtype, "f32"):
        x = cast(x, "f32")
    elif dtype in SMALL_INTEGERS and x.dtype in FLOATS:
        x = cast(x, "i32")
    return x.ne(0) if dtype == "b8" and x.dtype != "b8" else cast(x, dtype)


def rounded(value: float, dtype: str) -> float:
    """A number as a tensor of the dtype would hold it."""
    if dtype not in HALF and dtype != "f32":
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
    if value == value:  # of a NaN the upper half alone could be an infinity
        bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def operand(value: Scalar | float, dtype: str, site: Site | None = None) -> Scalar:
    """A number as a constant beside operands of `dtype`; at a site, rounded as a tensor there would hold it."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, complex):
        raise NoRule("a complex number")
    return const(rounded(value, site.dtype) if site is not None else value, dtype)


def paired(x: Scalar | float, y: Scalar | float, site: Site | None = None) -> tuple[Scalar, Scalar]:
    """Two operands, of which one may be a number."""
    dtype = x.dtype if isinstance(x, Scalar) else y.dtype  # type: ignore[union-attr]
    return operand(x, dtype, site), operand(y, dtype, site)


def clamped(x: Scalar, low: Scalar | float | None, high: Scalar | float | None) -> Scalar:
    """Between two bounds that are not NaN, the upper one winning. NaN and -0.0 stay what they are, as in eager."""
    if low is not None:
        x = select(x < low, low, x)
    if high is not None:
        x = select(x > high, high, x)
    return x


def is_float(x: Scalar) -> bool:
    return x.dtype in FLOATS


def truth(x: Scalar) -> Scalar:
    """Whether it is not zero."""
    return x if x.dtype == "b8" else x.ne(0)
