"""Arithmetic of two or more operands: sums, products, quotients, remainders, powers, interpolation.

    >>> print(add(x, y, alpha=2))                     # x, y: f32
    fma(y, 2.0, x)
    >>> print(power(x, 2))
    mul(x, x)

Division of integers by a tensor has no rule: eager raises if the tensor contains a zero.
"""

from __future__ import annotations

import math

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import common_dtype, kind
from ..operator_record import NoRule, shape
from ..scalar_ir import Scalar, binary, cast, const, fma, is_inf, is_nan, maximum, minimum, select
from .elementwise_record import Site, elementwise, elementwise_shape, is_float, operand, paired, why_not_half

Number = bool | int | float
Operand = Scalar | Number


# -- sums and products -------------------------------------------------------------------------------------------------


def why_not_alpha(x: TensorType | Number, y: TensorType | Number, alpha: Number = 1) -> str | None:
    """Eager rejects a float `alpha` for integers and bools, and a bool `alpha` for everything except bools."""
    level = kind(common_dtype([x, y]))
    if isinstance(alpha, complex):
        return None if level == 3 else "a complex factor"
    if isinstance(alpha, bool):
        return None if level == 0 else "a bool as factor"
    return "a fraction as factor" if isinstance(alpha, float) and level < 2 else None


@elementwise("aten.add.Tensor", "aten.add.Scalar", takes="bifc", why_not=why_not_alpha, wraps=True)
def add(x: Operand, y: Operand, alpha: Number = 1, site: Site | None = None) -> Scalar:
    x, y = paired(x, y, site)
    if x.dtype == "b8":
        return x | y if alpha else x
    if alpha == 1:
        return x + y
    return fma(y, operand(alpha, x.dtype, site), x) if is_float(x) else x + y * alpha


def why_not_sub(x: TensorType | Number, y: TensorType | Number, alpha: Number = 1) -> str | None:
    if any(isinstance(z, bool) or (isinstance(z, TensorType) and kind(z.dtype) == 0) for z in (x, y)):
        return "a difference of bools"
    return why_not_alpha(x, y, alpha)


@elementwise("aten.sub.Tensor", "aten.sub.Scalar", takes="ifc", why_not=why_not_sub, wraps=True)
def sub(x: Operand, y: Operand, alpha: Number = 1, site: Site | None = None) -> Scalar:
    x, y = paired(x, y, site)
    if alpha == 1:
        return x - y
    return fma(y, operand(-alpha, x.dtype, site), x) if is_float(x) else x - y * alpha


@elementwise("aten.rsub.Tensor", "aten.rsub.Scalar", takes="ifc", order=(1, 0), why_not=why_not_sub, wraps=True)
def rsub(x: Operand, y: Operand, alpha: Number = 1, site: Site | None = None) -> Scalar:
    return sub(y, x, alpha, site)


@elementwise("aten.mul.Tensor", "aten.mul.Scalar", takes="bifc", wraps=True, wide=1)
def mul(x: Operand, y: Operand) -> Scalar:
    x, y = paired(x, y)
    return x & y if x.dtype == "b8" else x * y


def why_not_value(x: TensorType, y: TensorType, z: TensorType, value: Number = 1) -> str | None:
    level = kind(common_dtype([x, y, z]))
    if isinstance(value, complex):
        return None if level == 3 else "a complex factor"
    return "a fraction as factor" if isinstance(value, float) and level < 2 else None


@elementwise("aten.addcmul.default", takes="ifc", cost=3, why_not=why_not_value)
def addcmul(x: Scalar, y: Scalar, z: Scalar, value: Number = 1) -> Scalar:
    y = y if value == 1 else y * value
    return fma(y, z, x) if is_float(x) else x + y * z


def why_not_quotient(x: TensorType, y: TensorType, z: TensorType, value: Number = 1) -> str | None:
    return "a quotient of integers" if kind(y.dtype) < 2 and kind(z.dtype) < 2 else why_not_value(x, y, z, value)


@elementwise("aten.addcdiv.default", takes="fc", cost=5, why_not=why_not_quotient)
def addcdiv(x: Scalar, y: Scalar, z: Scalar, value: Number = 1) -> Scalar:
    return x + (y if value == 1 else y * value) / z


def why_not_lerp(x: TensorType, end: TensorType, weight: TensorType | Number) -> str | None:
    if x.dtype != end.dtype or (isinstance(weight, TensorType) and weight.dtype != x.dtype and weight.shape):
        return "ends and weight of several dtypes"
    return "a complex weight" if isinstance(weight, complex) and not x.dtype.is_complex else None


@elementwise("aten.lerp.Scalar", "aten.lerp.Tensor", promotion="first", takes="fc", cost=4, why_not=why_not_lerp)
def lerp(x: Scalar, end: Scalar, weight: Scalar | Number) -> Scalar:
    """Computed from the nearer end, so that both ends are exact."""
    way = end - x
    if not isinstance(weight, Scalar):
        weight = operand(weight, x.dtype)
        near = abs(weight.payload) < 0.5
        return fma(weight, way, x) if near else fma(weight - 1, way, end)
    is_near = weight.abs() < 0.5
    return fma(select(is_near, weight, weight - 1), way, select(is_near, x, end))


# -- quotients ---------------------------------------------------------------------------------------------------------


@elementwise("aten.div.Tensor", "aten.div.Scalar", promotion="floating", takes="fc", cost=3, wraps=True, wide=1)
def div(x: Operand, y: Operand) -> Scalar:
    x, y = paired(x, y)
    return x / y


@elementwise("aten.div.Tensor_mode", "aten.div.Scalar_mode", cost=8, wraps=True, wide=1)
def div_mode(x: Operand, y: Operand, rounding_mode: str | None = None) -> Scalar:
    x, y = paired(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if is_float(x):
        return (x / y).trunc() if rounding_mode == "trunc" else x / y
    if rounding_mode is None:
        raise NoRule("the quotient of integers as a fraction")
    refuse_integer_divisor(y)
    return x / y


@shape("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode_type(x: TensorType, y: TensorType | Number, rounding_mode: str | None = None) -> TensorType:
    """Without a mode, integers give floats. With a mode, complex numbers and bools are rejected."""
    return true_quotient(x, y) if rounding_mode is None else rounded_quotient(x, y)


true_quotient = elementwise_shape(promotion="floating", takes="fc", wraps=True)
rounded_quotient = elementwise_shape(takes="if", wraps=True)


@elementwise("aten.floor_divide.default", "aten.floor_divide.Scalar", takes="if", cost=8, wraps=True, wide=1)
def floor_divide(x: Operand, y: Operand) -> Scalar:
    """For floats as in Python: the true quotient's floor, even if x / y rounds up to an integer."""
    x, y = paired(x, y)
    if not is_float(x):
        refuse_integer_divisor(y)
        return binary("floor_div", x, y)
    rest = binary("fmod", x, y)
    quotient = (x - rest) / y
    quotient = select(rest.ne(0) & ((y < 0).ne(rest < 0)), quotient - 1, quotient)
    low = quotient.floor()
    low = select(quotient - low > 0.5, low + 1, low)
    whole = select(quotient.ne(0), low, binary("copysign", const(0, x.dtype), x / y))
    return select(y.eq(0), x / y, whole)


@elementwise(
    "aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", takes="if", cost=8, wraps=True
)
def remainder(x: Operand, y: Operand, site: Site | None = None) -> Scalar:
    """With the sign of the divisor."""
    x, y = paired(x, y, site)
    if not is_float(x):
        refuse_integer_divisor(y)
        return binary("remainder", x, y)
    rest = binary("fmod", x, y)
    return select(rest.ne(0) & ((y < 0).ne(rest < 0)), rest + y, rest)


@elementwise("aten.fmod.Tensor", "aten.fmod.Scalar", takes="if", cost=6, wraps=True)
def fmod(x: Operand, y: Operand, site: Site | None = None) -> Scalar:
    """With the sign of the dividend."""
    x, y = paired(x, y, site)
    if not is_float(x):
        refuse_integer_divisor(y)
    return binary("fmod", x, y)


def refuse_integer_divisor(y: Scalar) -> None:
    if y.op != "const" or y.payload == 0:
        raise NoRule("integers divided by what may be zero")


# -- powers ------------------------------------------------------------------------------------------------------------


def why_not_power(x: TensorType | Number, exponent: TensorType | Number) -> str | None:
    level = kind(common_dtype([x, exponent]))
    if level == 0 and isinstance(exponent, TensorType):
        return "a power of bools"
    if level == 1 and not isinstance(exponent, TensorType) and exponent < 0:
        return "integers to a negative power"
    return None


@elementwise("aten.pow.Scalar", takes="bifc", cost=25, contiguous=True, fits=True, why_not=why_not_power)
@elementwise("aten.pow.Tensor_Tensor", takes="bifc", cost=25, why_not=why_not_power)
def power(x: Operand, exponent: Operand, site: Site | None = None) -> Scalar:
    """Exponents with a shortcut in eager use the same one: sqrt(-inf) is NaN, while pow(-inf, 0.5) is infinite."""
    if isinstance(exponent, Scalar):
        if not is_float(exponent):
            raise NoRule("an integer to a power known only when it runs")
        if not isinstance(x, Scalar) and x == 1:
            return const(1, exponent.dtype)
        x, exponent = paired(x, exponent, site)
        return binary("pow", x, exponent)
    if x.dtype == "b8":
        raise NoRule("a power of bools")
    if exponent == 0:
        return const(1, x.dtype)
    if exponent == 1:
        return x
    if not is_float(x):
        return multiplied_out(x, int(exponent))
    match exponent:
        case 0.5 | -0.5 if site is not None and site.dtype == "f16":
            pass  # eager has no shortcut here, and other zeros and infinities
        case 0.5:
            return x.sqrt()
        case -0.5:
            return x.rsqrt()
        case 2:
            return x * x
        case 3:
            return x * x * x
        case -1:
            return x.reciprocal()
        case -2:
            return (x * x).reciprocal()
    return binary("pow", x, operand(exponent, x.dtype, site))


@elementwise("aten.pow.Tensor_Scalar", takes="bifc", cost=25, fits=True, why_not=why_not_power)
def power_by_number(x: Scalar, exponent: Operand, site: Site | None = None) -> Scalar:
    """A live exponent may be one for which eager has a shortcut that gives other zeros and infinities."""
    made = power(x, exponent, site)
    if not isinstance(exponent, Scalar) or site is not None and site.dtype == "f16":
        return made
    return select(exponent.eq(0.5), x.sqrt(), select(exponent.eq(-0.5), x.rsqrt(), made))


def multiplied_out(x: Scalar, exponent: int) -> Scalar:
    """A power of an integer by repeated squaring."""
    if exponent < 0:
        raise NoRule("integers to a negative power")
    product, square = None, x
    while exponent:
        if exponent & 1:
            product = square if product is None else product * square
        exponent >>= 1
        if exponent:
            square = square * square
    return product if product is not None else const(1, x.dtype)


# -- other functions of two numbers ------------------------------------------------------------------------------------


@elementwise("aten.atan2.default", promotion="floating", takes="f", cost=20)
def atan2(y: Scalar, x: Scalar) -> Scalar:
    return binary("atan2", y, x)


@elementwise("aten.hypot.default", takes="f", cost=8)
def hypot(x: Scalar, y: Scalar) -> Scalar:
    """f32 is squared in f64. For f64 the larger operand is factored out against overflow."""
    if x.dtype == "f32":
        a, b = cast(x, "f64"), cast(y, "f64")
        size = cast((a * a + b * b).sqrt(), "f32")
    else:
        a, b = x.abs(), y.abs()
        large, small = maximum(a, b), minimum(a, b)
        ratio = small / large
        size = select(large.eq(0), large, large * fma(ratio, ratio, const(1, x.dtype)).sqrt())
    return select(is_inf(x) | is_inf(y), math.inf, size)


@elementwise("aten.logaddexp.default", takes="fc", cost=25)
def logaddexp(x: Scalar, y: Scalar) -> Scalar:
    return select(is_inf(x) & x.eq(y), x, maximum(x, y) + (-(x - y).abs()).exp().log1p())


@elementwise("aten.logaddexp2.default", takes="f", cost=25)
def logaddexp2(x: Scalar, y: Scalar) -> Scalar:
    more = (-(x - y).abs()).exp2().log1p()
    return select(is_inf(x) & x.eq(y), x, fma(more, const(1 / math.log(2), x.dtype), maximum(x, y)))


@elementwise(
    "aten.xlogy.Tensor",
    "aten.xlogy.Scalar_Self",
    "aten.xlogy.Scalar_Other",
    promotion="floating",
    takes="f",
    cost=13,
    wraps=True,
)
def xlogy(x: Operand, y: Operand, site: Site | None = None) -> Scalar:
    x, y = paired(x, y, site)
    return select(x.eq(0) & ~is_nan(y), 0, x * y.log())


@elementwise(
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar",
    promotion="floating",
    takes="f",
    cost=13,
    wraps=True,
)
def xlog1py(x: Operand, y: Operand, site: Site | None = None) -> Scalar:
    x, y = paired(x, y, site)
    return select(x.eq(0) & ~is_nan(y), 0, x * y.log1p())


@elementwise("aten.copysign.Tensor", "aten.copysign.Scalar", promotion="floating", takes="f", wraps=True)
def copysign(x: Scalar, y: Operand) -> Scalar:
    return binary("copysign", *paired(x, y))


elementwise_shape("aten.gcd.default", "aten.lcm.default", takes="i")
elementwise_shape("aten.nextafter.default", takes="f")
elementwise_shape("aten.igamma.default", "aten.igammac.default", takes="f")
elementwise_shape(
    "aten.special_zeta.default",
    "aten.special_zeta.other_scalar",
    "aten.special_zeta.self_scalar",
    promotion="floating",
    takes="f",
    wraps=True,
    why_not=why_not_half,
)
