"""erf, erfc and their likes."""

from __future__ import annotations

import math

from ...ops.scalar import Scalar, cast, fma, select
from .exponentials import wide_exp2
from .floats import at_most, bits, from_bits, layout, magnitude, polynomial, shift_left, signed_like

ERF_NEAR = (0.12837912142276764, -0.37612318992614746, 0.11280113458633423, -0.026709215715527534, 0.004914907738566399, -0.0005619882140308619)
ERF_FAR = (-0.0005104197189211845, -1.6259746551513672, -0.9207656383514404, -0.14865104854106903, 0.03145826607942581, -0.00424093846231699, 0.00026772799901664257)
EXP2 = (1.0, 0.6931470036506653, 0.24022246897220612, 0.0555071160197258, 0.009671300649642944, 0.0013269269838929176)

def erf(x: Scalar) -> Scalar:
    size = at_most(magnitude(x), 4.0)
    near = fma(polynomial(size * size, ERF_NEAR), size, size)
    parts = layout(x)
    exponent = polynomial(size, ERF_FAR)
    rounder = parts.rounder + parts.bias
    shifted = exponent + rounder
    r = exponent - (shifted - rounder)
    far = 1.0 - polynomial(r, EXP2) * from_bits(shift_left(bits(shifted), parts.mantissa))
    return signed_like(select(size < 1.0, near, far), x)

ERFC_CENTRE = 2.5
ERFC = (0.21080636427406532, -0.3717367294864007, 0.25171316263112753, -0.12503319644116076, 0.03992312435152466,
        -0.003992219759324636, -0.0026459687958613042, 0.0008685806735502439, 0.00023656715427197413,
        -0.00011065187068029274, -3.746466095223933e-05)  # fmt: skip
"""erfc(x) * exp(x * x) of (x - 2.5) / (x + 2.5), 0 <= x <= 10.2."""


def erfc(x: Scalar) -> Scalar:
    """In f64: there x * x is exact, and so is what the exponential makes of it."""
    size = at_most(magnitude(cast(x, "f64")), 10.2)
    place = (size - ERFC_CENTRE) / (size + ERFC_CENTRE)
    value = polynomial(place, ERFC) * wide_exp2(size * size * (-1.0 / math.log(2.0)))
    return cast(select(x < 0.0, 2.0 - value, value), "f32")


EXPANSIONS = {"erf": erf, "erfc": erfc}
