"""Unary functions: exponentials, logarithms, trigonometry, rounding, signs.

>>> print(sinc(x))
select(eq(x, 0.0), 1.0, div(sin(mul(x, 3.14...)), mul(x, 3.14...)))
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...tensors.dtypes import UNSIGNED
from ...tensors.eager_strides import preserved_stride
from ...tensors.tensor_types import TensorType, contiguous_stride
from ..operator_record import record, shape
from ..scalar_ir import Scalar, cast, const, is_nan, select, unary
from .elementwise_record import elementwise, elementwise_shape, is_float, why_not_half

# -- operations of the scalar IR, with their costs ---------------------------------------------------------------------

FLOATING = {
    "sqrt": 4,
    "rsqrt": 6,
    "reciprocal": 3,
    "exp": 10,
    "exp2": 10,
    "expm1": 18,
    "log": 12,
    "log2": 12,
    "log10": 12,
    "log1p": 14,
    "sin": 16,
    "cos": 16,
    "tan": 18,
    "asin": 14,
    "acos": 14,
    "atan": 14,
    "sinh": 16,
    "cosh": 16,
    "tanh": 14,
    "asinh": 20,
    "acosh": 20,
    "atanh": 18,
    "sigmoid": 14,
}
"""The functions that ATen also defines for complex numbers; integers become floats."""

REAL = {"erf": 14, "erfc": 18, "lgamma": 60}


def register_operation(op: str, takes: str, cost: int) -> None:
    @elementwise(f"aten.{op}.default", promotion="floating", takes=takes, cost=cost)
    def rule(x: Scalar) -> Scalar:
        return unary(op, x)


for name, cost in FLOATING.items():
    register_operation(name, "fc", cost)
for name, cost in REAL.items():
    register_operation(name, "f", cost)

# No printer supports these two: eager's kernels run them.
elementwise_shape("aten.erfinv.default", "aten.digamma.default", promotion="floating", takes="f")


# -- rounding ----------------------------------------------------------------------------------------------------------


def register_rounding(op: str) -> None:
    @elementwise(f"aten.{op}.default", takes="if")
    def rule(x: Scalar) -> Scalar:
        return unary(op, x) if is_float(x) else x


for name in ("floor", "ceil", "trunc", "round"):
    register_rounding(name)


@elementwise("aten.round.decimals", takes="f", cost=5)
def round_decimals(x: Scalar, decimals: int) -> Scalar:
    power = float(10 ** abs(decimals)) if abs(decimals) < 300 else math.inf
    return (x * power).round() / power if decimals >= 0 else (x / power).round() * power


@elementwise("aten.frac.default", takes="f", cost=2)
def frac(x: Scalar) -> Scalar:
    return x - x.trunc()


# -- signs -------------------------------------------------------------------------------------------------------------


@elementwise("aten.neg.default", takes="ifc")
def neg(x: Scalar) -> Scalar:
    return -x


@elementwise("aten.abs.default", takes="if")
def absolute(x: Scalar) -> Scalar:
    return x if x.dtype in UNSIGNED else x.abs()


@elementwise("aten.sign.default", cost=3)
def sign(x: Scalar) -> Scalar:
    """0 for NaN."""
    return x if x.dtype == "b8" else cast(x > 0, x.dtype) - cast(x < 0, x.dtype)


elementwise("aten.sgn.default", takes="bifc", cost=3)(sign)


# -- others ------------------------------------------------------------------------------------------------------------


@elementwise("aten.sinc.default", promotion="floating", takes="fc", cost=18)
def sinc(x: Scalar) -> Scalar:
    turned = x * math.pi
    return select(x.eq(0), 1, turned.sin() / turned)


@elementwise("aten.logit.default", promotion="floating", takes="f", cost=16)
def logit(x: Scalar, eps: float | None = None) -> Scalar:
    if eps is not None and eps >= 0:
        x = select(x < eps, eps, select(x > 1 - eps, 1 - eps, x))
    return (x / (1 - x)).log()


@elementwise("aten.deg2rad.default", promotion="floating", takes="f", like=0)
def deg2rad(x: Scalar) -> Scalar:
    return x * (math.pi / 180)


@elementwise("aten.rad2deg.default", promotion="floating", takes="f", like=0)
def rad2deg(x: Scalar) -> Scalar:
    return x * (180 / math.pi)


@elementwise("aten.angle.default", promotion="floating", takes="f", cost=3)
def angle(x: Scalar) -> Scalar:
    return select(is_nan(x), x, select(x < 0, math.pi, const(0, x.dtype)))


def register_real_part(name: str, stride: Callable[[TensorType], tuple[int, ...]]) -> None:
    """Extend a shape rule: the result of complex numbers is real."""
    real = record(name).shape
    assert real is not None

    @shape(name)
    def result(x: TensorType) -> TensorType:
        return TensorType(x.shape, stride(x), x.dtype.to_real(), x.device) if x.dtype.is_complex else real(x)


register_real_part("aten.abs.default", preserved_stride)
register_real_part("aten.angle.default", lambda x: contiguous_stride(x.shape))


@elementwise("aten.special_entr.default", promotion="floating", takes="f", cost=15)
def entr(x: Scalar) -> Scalar:
    return select(is_nan(x), x, select(x > 0, -x * x.log(), select(x.eq(0), 0, const(-math.inf, x.dtype))))


# -- no expression in the scalar IR ------------------------------------------------------------------------------------

elementwise_shape(
    *(f"aten.{name}.default" for name in "i0 special_i0e special_i1 special_i1e".split()),
    promotion="floating",
    takes="f",
)
elementwise_shape(
    *(
        f"aten.special_{name}.default"
        for name in "erfcx log_ndtr ndtri airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 spherical_bessel_j0 "
        "modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
        "scaled_modified_bessel_k1".split()
    ),
    promotion="floating",
    takes="f",
    why_not=why_not_half,
)
