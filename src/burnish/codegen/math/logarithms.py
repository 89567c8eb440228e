"""Expands log, log2, log10, log1p: the exponent, and a polynomial of the mantissa.

x = 2**k * (1 + f) with f between -1/3 and 1/3. Near 1, where the logarithm is small, k is 0 and the polynomial alone is
the result. For log and log1p, f is between -1/4 and 1/2. Where k is 1, less cancels. log1p loses nothing of its
argument in an f that is at most a quarter below 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, compare, const, fma, is_nan, select, unary
from .float_bits import at_least, bits, from_bits, integer_to_float, layout, polynomial, shift_left, shift_right, times


@dataclass(frozen=True)
class Table:
    """The constants of one type."""

    start: int
    """The bits of 2/3."""
    start_natural: int
    """The bits of 3/4."""
    log2: tuple[float, float]
    """log(2) is the sum of both."""
    log10_2: tuple[float, float]
    """log10(2) is the sum of both. Any k times the first is exact."""
    log10_e: tuple[float, float]
    """log10(e) is the sum of both."""
    log: tuple[float, ...]
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    log1p: tuple[float, ...]
    """(log(1 + f) - f) / f**2."""
    log2_1p: tuple[float, ...]
    """log2(1 + f) / f."""
    log10_1p: tuple[float, ...]
    """(log10(1 + f) - f * log10(e)) / f**2."""


TABLES = {
    "f32": Table(
        start=0x3F2AAAAB,
        start_natural=0x3F400000,
        log2=(0.6931471824645996, -1.904654323148236e-09),
        log10_2=(0.30103302001953125, -3.0243555500547862e-06),
        log10_e=(0.4342944920063019, -1.0103050052231683e-08),
        log=(0.3333345055580139, -0.25000110268592834, 0.19990848004817963, -0.1664687693119049, 0.14477626979351044,
             -0.13163959980010986, 0.10472635924816132, -0.04515301063656807),
        log1p=(-0.5000005960464478, 0.3333354592323303, -0.24993492662906647, 0.19977204501628876,
               -0.16822277009487152, 0.1498229205608368, -0.12067463994026184, 0.05415275692939758),
        log2_1p=(1.4426950216293335, -0.7213468551635742, 0.4808981120586395, -0.36077266931533813, 0.2886529266834259,
                 -0.2370467334985733, 0.20242725312709808, -0.22100861370563507, 0.20045894384384155),
        log10_1p=(-0.21714696288108826, 0.144764244556427, -0.10860762000083923, 0.08690710365772247,
                  -0.0712926834821701, 0.06078837439417839, -0.06683716922998428, 0.060887373983860016),
    ),
    "f64": Table(
        start=0x3FE5555555555555,
        start_natural=0x3FE8000000000000,
        log2=(0.6931471805599453, 2.3190468138462996e-17),
        log10_2=(0.30102999566395283, 2.8363394551044964e-14),
        log10_e=(0.4342944819032518, 1.098319650216765e-17),
        log=(0.3333333333333327, -0.25000000000001893, 0.2000000000003223, -0.16666666666198726, 0.14285714280088846,
             -0.12500000038244305, 0.11111111582194938, -0.09999998835886843, 0.09090887957440837, -0.08333329611265658,
             0.07692820988970148, -0.0714392707641282, 0.06660711037371173, -0.06224730044618078, 0.058918762222237145,
             -0.05778209607606435, 0.056593952330965605, -0.04721663849197209, 0.026597582602896696,
             -0.007089646374094827),
        log1p=(-0.4999999999999997, 0.3333333333333394, -0.2500000000001958, 0.19999999999816997,
               -0.16666666662762702, 0.14285714301339475, -0.12500000349044563, 0.11111110797367087,
               -0.09999983787709701, 0.0909088974314192, -0.08333731547791719, 0.07693478073185168,
               -0.0713842426379211, 0.06642308020249799, -0.062491728874968386, 0.060871766662570014,
               -0.05977219397178332, 0.05074503045114727, -0.029355555654484777, 0.008057503106190677),
        log2_1p=(1.4426950408889634, -0.7213475204444817, 0.48089834696301637, -0.36067376022229625, 0.288539008171139,
                 -0.24044917345887132, 0.20609929215705441, -0.18033688312082358, 0.16029942194799987,
                 -0.1442693145203563, 0.13115474977679856, -0.12023119891527995, 0.11096848003096008,
                 -0.10291253114329808, 0.09620281829193675, -0.0918926030480247, 0.08550837163266811,
                 -0.0673837131696712, 0.06735557546067082, -0.1217592376281205, 0.11058360068504887),
        log10_1p=(-0.21714724095162571, 0.14476482730108353, -0.10857362047594052, 0.08685889638091614,
                  -0.07238241362576779, 0.06204206879834681, -0.05428681244550032, 0.04825494594981729,
                  -0.04342934045533755, 0.039481162872107664, -0.03619435147592407, 0.03341135925888881,
                  -0.03096389628812512, 0.028884145706214115, -0.027791901885915255, 0.026278118512241683,
                  -0.019706656566350525, 0.018148589346211788, -0.0377393378018206, 0.036891565870009545),
    ),
}  # fmt: skip

LOG2_WIDE = (1.4426950408923345, -0.7213475195690306, 0.480898343963064, -0.36067397864948875,
             0.28853944145632077, -0.24043365887318516, 0.20607598552634085, -0.18080609362973882,
             0.1608910104670199, -0.1374608439195784, 0.12356456721130947, -0.1661061089800776,
             0.15753652747968558)  # fmt: skip
"""log2(1 + f) / f to 2**-35: for results in f32 that are computed in f64."""


def log(x: Scalar) -> Scalar:
    """k * log(2) + f - f**2 / 2 + f**3 * p(f), summed from small to large. The rounding error of the first sum and the
    low word of log(2) are small enough to join the remaining terms."""
    table = TABLES[x.dtype]
    k, f = unary("exponent", x), unary("mantissa", x) - 1.0
    most = times(k, table.log2[0], f)
    rest = times(k, table.log2[1], f - times(k, -table.log2[0], most))
    # Half a square is not rounded before it is added.
    value = most + fma(f * -0.5, f, fma(f * f, f * polynomial(f, table.log), rest))
    # At 0, at infinity and for negative x this is NaN, and the exponent operation returns the wanted logarithm.
    return select(is_nan(value), k, value)


def log_of_1p(f: Scalar) -> Scalar:
    return fma(f * f, polynomial(f, TABLES[f.dtype].log1p), f)


def log2(x: Scalar) -> Scalar:
    k, f = exponent_and_mantissa(x, TABLES[x.dtype].start)
    return with_edges(fma(f, polynomial(f, TABLES[x.dtype].log2_1p), k), x)


def log10(x: Scalar) -> Scalar:
    k, f = exponent_and_mantissa(x, TABLES[x.dtype].start)
    table = TABLES[x.dtype]
    # Where k is 0 the result is about f * log10(e), so that product must be exact until the end.
    low = fma(f * f, polynomial(f, table.log10_1p), f * table.log10_e[1])
    low = times(k, table.log10_2[1], times(f, table.log10_e[0], low))
    return with_edges(times(k, table.log10_2[0], low), x)


def exponent_and_mantissa(x: Scalar, start: int) -> tuple[Scalar, Scalar]:
    """k and f with x = 2**k * (1 + f), for a positive finite x. `start` is the bit pattern of the smallest 1 + f."""
    k, mantissa = whole_exponent_and_mantissa(x, start)
    return k, mantissa - 1.0


def whole_exponent_and_mantissa(x: Scalar, start: int) -> tuple[Scalar, Scalar]:
    parts = layout(x)
    is_denormal, up = x < parts.smallest, parts.mantissa + 1
    k, mantissa = split(select(is_denormal, x * 2.0**up, x), start)
    return k - select(is_denormal, const(up, x.dtype), 0.0), mantissa


def exponent_by_bits(x: Scalar) -> Scalar:
    return with_edges(whole_exponent_and_mantissa(x, TABLES[x.dtype].start_natural)[0], x)


def mantissa_by_bits(x: Scalar) -> Scalar:
    return whole_exponent_and_mantissa(x, TABLES[x.dtype].start_natural)[1]


def split(x: Scalar, start: int) -> tuple[Scalar, Scalar]:
    """k and m with x = 2**k * m, for a positive normal number."""
    k = shift_right(bits(x) - start, layout(x).mantissa)
    return integer_to_float(k), from_bits(bits(x) - shift_left(k, layout(x).mantissa))


def with_edges(value: Scalar, x: Scalar) -> Scalar:
    """The logarithm, corrected where x is infinite, zero or negative."""
    value = select(x < math.inf, value, x)
    value = select(compare("eq", x, 0.0), -math.inf, value)
    return select(x < 0.0, math.nan, value)


def log1p(x: Scalar) -> Scalar:
    """Like log of 1 + x, but f comes from x itself, without the rounding of 1 + x."""
    parts = layout(x)
    k = shift_right(bits(at_least(x, -1.0) + 1.0) - TABLES[x.dtype].start_natural, parts.mantissa)
    # 2**(2 - k), as the exponent of 4 minus k: 2**-k may not be a normal number.
    scale = from_bits(const((parts.bias + 2) << parts.mantissa, parts.integer) - shift_left(k, parts.mantissa))
    # -(4 - s) instead of s - 4, and -k * -log(2): both are -0 where k is 0, so a zero keeps its sign.
    f = fma(x, scale, -(4.0 - scale)) * 0.25
    value = times(integer_to_float(-k), -math.log(2.0), log_of_1p(f))
    value = select(x < math.inf, value, x)
    value = select(compare("eq", x, -1.0), -math.inf, value)
    return select(x < -1.0, math.nan, value)


def wide_log2_of_1p(x: Scalar) -> Scalar:
    """log2(1 + x) in f64 with a relative error of 2**-35, for a finite x > -1 below 2**1000."""
    k = shift_right(bits(x + 1.0) - TABLES["f64"].start, 52)
    scale = from_bits(const(1023 << 52, "i64") - shift_left(k, 52))
    f = fma(x, scale, scale - 1.0)
    return fma(f, polynomial(f, LOG2_WIDE), integer_to_float(k))


EXPANSIONS = {"log": log, "log2": log2, "log10": log10, "log1p": log1p}
