"""erf, erfc and their likes."""

from __future__ import annotations

from ...ops.scalar import Scalar, fma, select
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

EXPANSIONS = {"erf": erf}
