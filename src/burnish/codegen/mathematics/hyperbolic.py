"""tanh, and the hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ops.scalar import Scalar, bitcast, const, fma, select
from .floats import at_most, bits, from_bits, layout, magnitude, polynomial, shift_left, signed_like, times


@dataclass(frozen=True)
class Table:
    one: float
    """tanh is 1 above."""
    near: float
    """Below, a polynomial is tanh."""
    tanh: tuple[float, ...]
    """(tanh(s) / s - 1) / s**2 of s**2, s <= near."""
    exp: tuple[float, ...]
    """exp(r), |r| <= log(2) / 2, somewhat shorter than exp's own."""


TABLES = {
    "f32": Table(
        one=9.1,
        near=0.55,
        tanh=(-0.3333294689655304, 0.1332072913646698, -0.05267200618982315, 0.016437865793704987),
        exp=(1.0, 0.9999997019767761, 0.4999915063381195, 0.16667647659778595, 0.04189785569906235,
             0.008289728313684464),
    ),
}  # fmt: skip


def tanh(x: Scalar) -> Scalar:
    """1 - 2 / (exp(2x) + 1), but for small x, where that loses digits."""
    table, parts = TABLES[x.dtype], layout(x)
    size = at_most(magnitude(x), table.one)
    # The error of log(2) / 2 in one word times n is below what 1 - ... shows.
    rounder = parts.rounder + parts.bias
    shifted = times(size, 2.0 / math.log(2.0), rounder)
    n = shifted - rounder
    r = times(n, -math.log(2.0), size + size)
    scale = from_bits(shift_left(bits(shifted), parts.mantissa))
    far = 1.0 - const(2.0, x.dtype) / fma(polynomial(r, table.exp), scale, const(1.0, x.dtype))
    square = size * size
    near = fma(square * size, polynomial(square, table.tanh), size)
    return signed_like(select(size < table.near, near, far), x)


EXPANSIONS = {"tanh": tanh}
