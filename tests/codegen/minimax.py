"""Fits the polynomials of `burnish.codegen.mathematics`: run it and it prints the tables that stand there.

Remez' exchange over a dense grid, in high precision. The coefficients are rounded one after the other, lowest power
first, and the rest is fitted again each time, so that rounding costs next to nothing:

    >>> fit(Fit(mp.exp, (-0.35, 0.35), range(1, 4), lambda x: mp.exp(-x), {0: 1}))
    [1.0000..., 0.5049..., 0.1668...]
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from mpmath import mp, mpf

mp.prec = 160


@dataclass(frozen=True)
class Fit:
    """Approximate `function` on the interval by sum(c[k] * x**k for k in powers), |weight * error| being small.

    `fixed` holds coefficients that are not free. `exact` of the first powers are kept in f64 even if the type is f32.
    """

    function: Callable[[mpf], mpf]
    interval: tuple[float | mpf, float | mpf]
    powers: Iterable[int]
    weight: Callable[[mpf], mpf] = lambda x: mpf(1)
    fixed: Mapping[int, float] = field(default_factory=dict)
    dtype: str = "f32"
    grid: int = 800


def fit(what: Fit, report: bool = False) -> list[float]:
    """The coefficients of the free powers, rounded to the type."""
    low, high = (mpf(end) for end in what.interval)
    count = what.grid
    xs = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]
    xs = [x for x in xs if x != 0]
    weights = [abs(mpf(what.weight(x))) for x in xs]
    rest = [mpf(what.function(x)) - sum(mpf(c) * x**k for k, c in what.fixed.items()) for x in xs]
    free, found, error = list(what.powers), [], mpf(0)
    while free:
        coefficients, error = exchange(xs, rest, weights, free)
        if report and not found:
            print(f"  # error of the ideal polynomial 2**{float(mp.log(error, 2)):.2f}")
        power, chosen = free.pop(0), rounded(coefficients[0], what.dtype)
        found.append(chosen)
        rest = [value - mpf(chosen) * x**power for value, x in zip(rest, xs)]
    if report:
        error = max(abs(value * w) for value, w in zip(rest, weights))
        print(f"  # error of the rounded polynomial 2**{float(mp.log(error, 2)):.2f}")
    return found


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
        # The combination of the rows that vanishes says which sign the error has at each point of the reference.
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
        signed = mp.matrix([[rows[i][k] * s for i, s in zip(reference, signs)] for k in range(count)] + [[1] * (count + 1)])
        target = mp.matrix([-row * mp.sign(errors[worst]) for row in rows[worst]] + [0])
        shares = mp.lu_solve(signed, target)
        leaving = max(range(count + 1), key=lambda i: -shares[i] / abs(combination[i]))
        reference[leaving] = worst


def rounded(value: mpf, dtype: str) -> float:
    with mp.workprec(24 if dtype == "f32" else 53):
        return float(+value)
