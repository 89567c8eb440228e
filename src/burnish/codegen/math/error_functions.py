"""Expands erf and erfc.

erf(x) is an odd polynomial up to 1, and 1 - 2**p(x) above. The polynomial p is negative and so large in magnitude that
little of the error of 2**p reaches the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar_ir import Scalar, cast, const, fma, select
from .exponentials import wide_exp2
from .float_bits import at_most, bits, from_bits, layout, magnitude, polynomial, shift_left, signed_like


@dataclass(frozen=True)
class Table:
    """The constants of one type."""

    one: float
    """erf is 1 above it."""
    near: tuple[float, ...]
    """erf(s) / s - 1, a polynomial in s**2, s <= 1."""
    far: tuple[float, ...]
    """log2(1 - erf(s)), 1 <= s."""
    exp2: tuple[float, ...]
    """2**r, |r| <= 1/2, only as accurate as erf needs it."""


TABLES = {
    "f32": Table(
        one=3.95,
        near=(0.12837916612625122, -0.3761262595653534, 0.11283578723669052, -0.026853347197175026,
              0.005187162198126316, -0.0007997853099368513, 7.806903886375949e-05),
        far=(-0.0005103707080706954, -1.6259747743606567, -0.9207655787467957, -0.14865097403526306,
             0.03145816549658775, -0.00424089515581727, 0.0002677213924471289),
        exp2=(1.0, 0.6931470036506653, 0.24022246897220612, 0.0555071197450161, 0.009671301580965519,
              0.0013269106857478619),
    ),
    "f64": Table(
        one=5.95,
        near=(0.1283791670955126, -0.376126389031841, 0.11283791670971134, -0.02686617064804537, 0.005223977652906115,
              -0.0008548328552546289, 0.0001205538697366254, -1.4926904439948186e-05, 1.648149742738211e-06,
              -1.6562538894235667e-07, 1.6054798815499855e-08, -1.6645577295114881e-09, 1.4683425429074226e-10),
        far=(-7.405993049088209e-07, -1.6278995606582545, -0.9184832276889117, -0.14816806577491684,
             0.02739391859711277, 0.0005966572279781512, -0.002768506882582318, 0.0011153097383634041,
             -0.00019703478938620252, -2.8152226014379013e-05, 3.250271532858153e-05, -1.2374875850883145e-05,
             3.0505978995504424e-06, -5.330935406243827e-07, 6.625720878600926e-08, -5.611129061574289e-09,
             2.9141782149745615e-10, -7.017364081185106e-12),
        exp2=(1.0, 0.6931471805599492, 0.240226506959091, 0.055504108664481716, 0.009618129107983433,
              0.001333355822584309, 0.00015403529993926712, 1.5252659392820132e-05, 1.3215653714730963e-06,
              1.0208331104125531e-07, 7.038167368711718e-09),
    ),
}  # fmt: skip

ERFC = (0.21080636427317231, -0.37173672949018216, 0.25171316266948585, -0.12503319639412072,
        0.03992312403110095, -0.00399222015459773, -0.0026459679168275405, 0.0008685822082279995,
        0.0002365667181802868, -0.00011065381173609402, -3.7465579063114754e-05)  # fmt: skip
"""erfc(s) * exp(s**2), a polynomial in (s - 2.5) / (s + 2.5), s <= 10.2, to 2**-29."""


def erf(x: Scalar) -> Scalar:
    table, parts = TABLES[x.dtype], layout(x)
    size = at_most(magnitude(x), table.one)
    near = fma(polynomial(size * size, table.near), size, size)
    power = polynomial(size, table.far)
    rounder = parts.rounder + parts.bias
    shifted = power + rounder
    r = power - (shifted - rounder)
    power_of_two = from_bits(shift_left(bits(shifted), parts.mantissa))
    far = fma(polynomial(r, [-c for c in table.exp2]), power_of_two, const(1.0, x.dtype))
    return signed_like(select(size < 1.0, near, far), x)


def erfc(x: Scalar) -> Scalar:
    """Computed in f64, where x**2 is exact, and so is the argument of the exponential."""
    size = at_most(magnitude(cast(x, "f64")), 10.2)
    place = (size - 2.5) / (size + 2.5)
    value = polynomial(place, ERFC) * wide_exp2(size * size * (-1.0 / math.log(2.0)))
    return cast(select(x < 0.0, 2.0 - value, value), "f32")


EXPANSIONS = {"erf": erf, "erfc": erfc}
