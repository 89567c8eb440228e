"""Fits the polynomials of `burnish.codegen.math`: it prints the tables in that package.

    python -m tests.codegen.minimax_fit                  all of them, with the error of each
    python -m tests.codegen.minimax_fit exponentials     those whose name starts with this

A minimax fit over a dense grid, in high precision. The coefficients are rounded one after the other, lowest power
first, and the rest is fitted again each time, so that rounding costs next to nothing.

    >>> coefficients(Fit(mp.exp, (-0.35, 0.35), 4, relative(mp.exp), fixed=(1.0,)))
    (1.0, 1.0000..., 0.5049..., 0.1668...)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

Function = Callable[[mpf], mpf]

mp.prec = 160


@dataclass(frozen=True)
class Fit:
    """sum(c * x**k for k, c in enumerate(coefficients)) that is closest to `function` on the interval.

    It minimizes the largest |weight * error|. `fixed` are the first coefficients if they are given, and all are
    numbers of the type.
    """

    function: Function
    interval: tuple[float | mpf, float | mpf]
    count: int
    weight: Function
    fixed: tuple[float, ...] = ()
    dtype: str = "f32"


def coefficients(what: Fit) -> tuple[float, ...]:
    return fitted(what)[0]


def fitted(what: Fit) -> tuple[tuple[float, ...], mpf]:
    """The coefficients, and the largest weighted error they leave."""
    low, high = (mpf(end) for end in what.interval)
    grid = 250 if what.count < 12 else 400
    xs = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / (grid - 1)) for k in range(grid)]
    # Where the weight is 0, as at the zeros of the function, there is nothing to fit.
    weights = {x: abs(what.weight(x)) for x in xs if x != 0}
    xs = [x for x in weights if weights[x] != 0]
    rest = [what.function(x) - mp.polyval(what.fixed[::-1] or [0], x) for x in xs]
    found = list(what.fixed)
    while len(found) < what.count:
        free = range(len(found), what.count)
        best, _ = exchange(xs, rest, [weights[x] for x in xs], list(free))
        with mp.workprec(24 if what.dtype == "f32" else 53):
            chosen = float(+best[0])
        rest = [value - mpf(chosen) * x ** len(found) for value, x in zip(rest, xs)]
        found.append(chosen)
    return tuple(found), max(abs(value) * weights[x] for value, x in zip(rest, xs))


def exchange(xs: list[mpf], values: list[mpf], weights: list[mpf], powers: list[int]) -> tuple[list[mpf], mpf]:
    """The best coefficients and the largest weighted error, by Stiefel's exchange of one point at a time.

    Unlike Remez' own, it does not suppose that the signs of the error alternate: they do not where the interval holds
    zero and the constant term is not free.
    """
    count = len(powers)
    rows = [[x**p * w for p in powers] for x, w in zip(xs, weights)]
    right = [value * w for value, w in zip(values, weights)]
    reference = [round((i + 0.5) * (len(xs) - 1) / (count + 1)) for i in range(count + 1)]
    while True:
        # The vanishing combination of the rows gives the sign of the error at each point of the reference.
        system = mp.matrix([[rows[i][k] for i in reference] for k in range(count)] + [[1] * (count + 1)])
        combination = mp.lu_solve(system, mp.matrix([0] * count + [1]))
        signs = [mp.sign(c) for c in combination]
        level = mp.matrix([rows[i] + [s] for i, s in zip(reference, signs)])
        solution = mp.lu_solve(level, mp.matrix([right[i] for i in reference]))
        coefficients, height = list(solution[:count]), solution[count]
        errors = [r - mp.fdot(coefficients, row) for r, row in zip(right, rows)]
        worst = max(range(len(xs)), key=lambda i: abs(errors[i]))
        if abs(errors[worst]) <= abs(height) * (1 + mpf(10) ** -6):
            return coefficients, abs(errors[worst])
        signs = [s * mp.sign(height) for s in signs]
        signed = mp.matrix(
            [[rows[i][k] * s for i, s in zip(reference, signs)] for k in range(count)] + [[1] * (count + 1)]
        )
        target = mp.matrix([-row * mp.sign(errors[worst]) for row in rows[worst]] + [0])
        shares = mp.lu_solve(signed, target)
        leaving = max(range(count + 1), key=lambda i: -shares[i] / abs(combination[i]))
        reference[leaving] = worst


def relative(function: Function) -> Function:
    return lambda x: 1 / function(x)


def in_last_places(function: Function) -> Function:
    """Weighs errors by the spacing of floats near the function's value."""
    return lambda x: mpf(2) ** -mp.floor(mp.log(abs(function(x)), 2))


def odd(function: Function) -> tuple[Function, Function]:
    """For an odd function near x: (function(s) / s - 1) / s**2 as a function of s**2, and the weight of its error."""
    return (
        lambda square: (function(mp.sqrt(square)) / mp.sqrt(square) - 1) / square,
        lambda square: square * mp.sqrt(square) / function(mp.sqrt(square)),
    )


def odd_fit(function: Function, end: float | mpf, count: int, dtype: str) -> Fit:
    rest, weight = odd(function)
    return Fit(rest, (0, mpf(end) ** 2), count, weight, dtype=dtype)


def hyperbolic_cosine_fit(count: int, dtype: str) -> Fit:
    """(cosh(s) - 1) / s**2 of s**2."""
    return Fit(
        lambda square: (mp.cosh(mp.sqrt(square)) - 1) / square,
        (0, 1),
        count,
        lambda square: square / mp.cosh(mp.sqrt(square)),
        (0.5,),
        dtype,
    )


def cosine_fit(count: int, dtype: str, fixed: tuple[float, ...] = ()) -> Fit:
    """(cos(s) - 1) / s**2 of s**2."""
    return Fit(
        lambda square: (mp.cos(mp.sqrt(square)) - 1) / square,
        (0, QUARTER**2),
        count,
        lambda square: square / mp.cos(mp.sqrt(square)),
        fixed,
        dtype,
    )


def log_fit(count: int, dtype: str) -> Fit:
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    ends = (-mpf(1) / 4, mpf(1) / 2)
    return Fit(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, ends, count, lambda f: f**3 / mp.log1p(f), dtype=dtype)


def log1p_fit(count: int, dtype: str) -> Fit:
    """(log(1 + f) - f) / f**2."""
    ends = (-mpf(1) / 4, mpf(1) / 2)
    return Fit(lambda f: (mp.log1p(f) - f) / f**2, ends, count, lambda f: f**2 / mp.log1p(f), dtype=dtype)


def log2_fit(count: int, dtype: str) -> Fit:
    """log2(1 + f) / f."""

    def function(f: mpf) -> mpf:
        return mp.log1p(f) / mp.log(2) / f

    return Fit(function, THIRD, count, relative(function), dtype=dtype)


def log10_fit(count: int, dtype: str) -> Fit:
    """(log10(1 + f) - f * log10(e)) / f**2."""
    return Fit(
        lambda f: (mp.log1p(f) - f) / f**2 / mp.log(10),
        THIRD,
        count,
        lambda f: f**2 / mp.log1p(f) * mp.log(10),
        dtype=dtype,
    )


def expm1_fit(count: int, dtype: str) -> Fit:
    """(exp(r) - 1 - r) / r**2."""
    return Fit(lambda r: (mp.expm1(r) - r) / r**2, HALF_LOG2, count, lambda r: r**2 / mp.expm1(r), dtype=dtype)


def exp_rest_fit(count: int, dtype: str) -> Fit:
    """The same, for sums whose place is that of exp(r)."""
    places = in_last_places(mp.exp)
    return Fit(lambda r: (mp.expm1(r) - r) / r**2, HALF_LOG2, count, lambda r: r**2 * places(r), dtype=dtype)


def exp_fit(ends: tuple[mpf, mpf], count: int, dtype: str) -> Fit:
    return Fit(mp.exp, ends, count, in_last_places(mp.exp), (1.0,), dtype)


def exp2_fit(count: int, dtype: str) -> Fit:
    return Fit(lambda r: 2**r, (-0.5001, 0.5001), count, relative(lambda r: 2**r), (1.0,), dtype)


def erf_near_fit(count: int, dtype: str) -> Fit:
    """erf(s) / s - 1 of s**2."""
    return Fit(
        lambda square: mp.erf(mp.sqrt(square)) / mp.sqrt(square) - 1,
        (0, 1),
        count,
        lambda square: mp.sqrt(square) / mp.erf(mp.sqrt(square)),
        dtype=dtype,
    )


def erf_far_fit(end: float, count: int, dtype: str) -> Fit:
    """log2(1 - erf(s)), so that 2 to that power is right in absolute terms."""
    return Fit(lambda s: mp.log(mp.erfc(s), 2), (1, end), count, lambda s: mp.erfc(s) * mp.log(2), dtype=dtype)


def erfc_fit(centre: float, end: float, count: int) -> Fit:
    """erfc(s) * exp(s**2) of (s - centre) / (s + centre)."""

    def function(place: mpf) -> mpf:
        s = centre * (1 + place) / (1 - place)
        return mp.erfc(s) * mp.exp(s**2)

    return Fit(function, (-1, (mpf(end) - centre) / (mpf(end) + centre)), count, relative(function), dtype="f64")


HALF_LOG2 = (-mp.log(2) * 0.5001, mp.log(2) * 0.5001)
THIRD = (-mpf(1) / 3, mpf(1) / 3)
QUARTER = mp.pi / 4 * 1.003

FITS: dict[str, Fit] = {
    "exponentials.TABLES.f32.exp": exp_rest_fit(5, "f32"),
    "exponentials.TABLES.f32.exp_short": exp_fit(HALF_LOG2, 7, "f32"),
    "exponentials.TABLES.f32.exp2": exp2_fit(7, "f32"),
    "exponentials.TABLES.f32.expm1": expm1_fit(6, "f32"),
    "exponentials.TABLES.f64.exp": expm1_fit(11, "f64"),
    "exponentials.TABLES.f64.exp_short": exp_fit(HALF_LOG2, 12, "f64"),
    "exponentials.TABLES.f64.exp2": exp2_fit(12, "f64"),
    "exponentials.TABLES.f64.expm1": expm1_fit(11, "f64"),
    "exponentials.EXP2_WIDE": exp2_fit(7, "f64"),
    "logarithms.TABLES.f32.log": log_fit(8, "f32"),
    "logarithms.TABLES.f64.log": log_fit(20, "f64"),
    "logarithms.TABLES.f32.log1p": log1p_fit(8, "f32"),
    "logarithms.TABLES.f32.log2_1p": log2_fit(9, "f32"),
    "logarithms.TABLES.f32.log10_1p": log10_fit(8, "f32"),
    "logarithms.TABLES.f64.log1p": log1p_fit(20, "f64"),
    "logarithms.TABLES.f64.log2_1p": log2_fit(21, "f64"),
    "logarithms.TABLES.f64.log10_1p": log10_fit(20, "f64"),
    "logarithms.LOG2_WIDE": log2_fit(13, "f64"),
    "hyperbolic.TABLES.f32.tanh": odd_fit(mp.tanh, 1.0, 7, "f32"),
    "hyperbolic.TABLES.f32.sinh": odd_fit(mp.sinh, 1, 4, "f32"),
    "hyperbolic.TABLES.f32.cosh": hyperbolic_cosine_fit(4, "f32"),
    "hyperbolic.TABLES.f32.exp": exp_fit(HALF_LOG2, 7, "f32"),
    "hyperbolic.TABLES.f64.tanh": odd_fit(mp.tanh, 0.65, 12, "f64"),
    "hyperbolic.TABLES.f64.sinh": odd_fit(mp.sinh, 1, 7, "f64"),
    "hyperbolic.TABLES.f64.cosh": hyperbolic_cosine_fit(8, "f64"),
    "hyperbolic.TABLES.f64.exp": exp_fit(HALF_LOG2, 11, "f64"),
    "trigonometry.SIN_F32": odd_fit(mp.sin, QUARTER, 3, "f32"),
    "trigonometry.COS_F32": cosine_fit(4, "f32", (-0.5,)),
    "trigonometry.SIN_WIDE": odd_fit(mp.sin, QUARTER, 4, "f64"),
    "trigonometry.COS_WIDE": cosine_fit(4, "f64"),
    "inverse_trigonometry.TABLES.f32.asin": odd_fit(mp.asin, 0.55, 5, "f32"),
    "inverse_trigonometry.TABLES.f32.atan": odd_fit(mp.atan, 1, 8, "f32"),
    "inverse_trigonometry.TABLES.f64.asin": odd_fit(mp.asin, 0.55, 14, "f64"),
    "inverse_trigonometry.TABLES.f64.atan": odd_fit(mp.atan, 1, 20, "f64"),
    "error_functions.TABLES.f32.near": erf_near_fit(7, "f32"),
    "error_functions.TABLES.f32.far": erf_far_fit(3.95, 7, "f32"),
    "error_functions.TABLES.f32.exp2": exp2_fit(6, "f32"),
    "error_functions.TABLES.f64.near": erf_near_fit(13, "f64"),
    "error_functions.TABLES.f64.far": erf_far_fit(5.95, 18, "f64"),
    "error_functions.TABLES.f64.exp2": exp2_fit(11, "f64"),
    "error_functions.ERFC": erfc_fit(2.5, 10.2, 11),
}


def main(prefix: str = "") -> None:
    for name, what in FITS.items():
        if name.startswith(prefix):
            found, error = fitted(what)
            print(f"{name}  # 2**{float(mp.log(error, 2)):.1f}\n    {found}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
