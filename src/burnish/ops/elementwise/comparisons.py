"""Comparisons, logic, bit operations, shifts, and classification of numbers (isnan, isinf, signbit).

>>> print(logical_and(x, y))                      # x, y: f32
and(ne(x, 0.0), ne(y, 0.0))
"""

from __future__ import annotations

import math

import torch

from ...tensors.dtypes import BITS, UNSIGNED, has_loops
from ...tensors.eager_strides import elementwise_stride
from ...tensors.tensor_types import TensorType
from ..memory_format import copied
from ..operator_record import NoRule, shape
from ..scalar_ir import Scalar, binary, bitcast, compare, const, is_inf, is_nan, select
from .elementwise_record import Site, elementwise, is_float, paired, truth

Operand = Scalar | bool | int | float


# -- comparisons -------------------------------------------------------------------------------------------------------


def register_comparison(op: str, takes: str) -> None:
    @elementwise(f"aten.{op}.Tensor", f"aten.{op}.Scalar", promotion="bool", takes=takes, wraps=True)
    def rule(x: Operand, y: Operand, site: Site | None = None) -> Scalar:
        return compare(op, *paired(x, y, site))


for name in ("eq", "ne"):
    register_comparison(name, "bifc")
for name in ("lt", "le", "gt", "ge"):
    register_comparison(name, "bif")


# -- classification of numbers -----------------------------------------------------------------------------------------


@elementwise("aten.isnan.default", promotion="bool", takes="bifc")
def isnan(x: Scalar) -> Scalar:
    return is_nan(x) if is_float(x) else const(False, "b8")


@elementwise("aten.isinf.default", promotion="bool", takes="bifc")
def isinf(x: Scalar) -> Scalar:
    return is_inf(x) if is_float(x) else const(False, "b8")


@shape("aten.isinf.default")
def isinf_type(x: TensorType) -> TensorType:
    """Strides are those of eager's comparison of the absolute value with a number."""
    if not has_loops(x.dtype):
        raise NoRule(f"{x.dtype}")
    if not x.dtype.is_floating_point:
        return copied(x, torch.bool)
    size = TensorType(x.shape, elementwise_stride(x.shape, [x]), x.dtype)
    stride = elementwise_stride(x.shape, [size, TensorType((), (), x.dtype)])
    return TensorType(x.shape, stride, torch.bool, x.device)


@elementwise("aten.isfinite.default", promotion="bool", takes="bifc")
def isfinite(x: Scalar) -> Scalar:
    return x.abs() < math.inf if is_float(x) else const(True, "b8")


@elementwise("aten.isposinf.default", promotion="bool")
def isposinf(x: Scalar) -> Scalar:
    return x.eq(math.inf) if is_float(x) else const(False, "b8")


@elementwise("aten.isneginf.default", promotion="bool")
def isneginf(x: Scalar) -> Scalar:
    return x.eq(-math.inf) if is_float(x) else const(False, "b8")


@elementwise("aten.signbit.default", promotion="bool")
def signbit(x: Scalar) -> Scalar:
    """The sign bit, also of -0.0 and NaN."""
    if not is_float(x):
        return const(False, "b8") if x.dtype == "b8" or x.dtype in UNSIGNED else x < 0
    return bitcast(x, f"i{BITS[x.dtype]}") < 0


# -- logic -------------------------------------------------------------------------------------------------------------


@elementwise("aten.logical_not.default", promotion="bool", takes="bifc")
def logical_not(x: Scalar) -> Scalar:
    return ~truth(x)


def register_logic(op: str) -> None:
    @elementwise(f"aten.logical_{op}.default", promotion="bool", takes="bifc")
    def logical(x: Scalar, y: Scalar) -> Scalar:
        return binary(op, truth(x), truth(y))

    @elementwise(
        f"aten.bitwise_{op}.Tensor",
        f"aten.bitwise_{op}.Scalar",
        f"aten.bitwise_{op}.Scalar_Tensor",
        f"aten.__{op}__.Tensor",
        f"aten.__{op}__.Scalar",
        takes="bi",
        wraps=True,
    )
    def bitwise(x: Operand, y: Operand) -> Scalar:
        return binary(op, *paired(x, y))


for name in ("and", "or", "xor"):
    register_logic(name)


@elementwise("aten.bitwise_not.default", takes="bi")
def bitwise_not(x: Scalar) -> Scalar:
    return ~x


# -- shifts ------------------------------------------------------------------------------------------------------------


@elementwise(
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.__lshift__.Tensor",
    "aten.__lshift__.Scalar",
    takes="i",
    cost=3,
    wraps=True,
)
def left_shift(x: Operand, y: Operand) -> Scalar:
    """Shifting out all bits, or by a negative number, gives 0."""
    x, y = paired(x, y)
    most = BITS[x.dtype] - 1
    return select(in_range(y, most), binary("shl", x, bounded(y, most)), 0)


@elementwise(
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.__rshift__.Tensor",
    "aten.__rshift__.Scalar",
    takes="i",
    cost=3,
    wraps=True,
)
def right_shift(x: Operand, y: Operand) -> Scalar:
    """Shifting out all bits, or by a negative number, leaves the sign."""
    x, y = paired(x, y)
    most = BITS[x.dtype] - 1
    shifted = binary("shr", x, bounded(y, most))
    return select(in_range(y, most), shifted, 0) if x.dtype in UNSIGNED else shifted


def in_range(y: Scalar, most: int) -> Scalar:
    if y.op == "const":
        return const(0 <= y.payload <= most, "b8")
    return y <= most if y.dtype in UNSIGNED else (y >= 0) & (y <= most)


def bounded(y: Scalar, most: int) -> Scalar:
    """The shift amount, or `most` if it is out of range."""
    if y.op == "const":
        return y if 0 <= y.payload <= most else const(most, y.dtype)
    return select(in_range(y, most), y, most)
