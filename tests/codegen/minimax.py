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
    weights = [mpf(what.weight(x)) for x in xs]
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
    """Remez' algorithm on a grid: the best coefficients and the largest weighted error."""
    count = len(powers) + 1
    chosen = [round(i * (len(xs) - 1) / (count - 1)) for i in range(count)] if count > 1 else [0]
    best: tuple[mpf, list[mpf]] | None = None
    columns = [[x**p for x in xs] for p in powers]
    for _ in range(60):
        matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
        for row, i in enumerate(chosen):
            for column in range(len(powers)):
                matrix[row, column] = columns[column][i] * weights[i]
            matrix[row, count - 1] = (-1) ** row
            right[row] = values[i] * weights[i]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(len(powers))]
        errors = [
            (value - sum(c * column[i] for c, column in zip(coefficients, columns))) * weights[i]
            for i, value in enumerate(values)
        ]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[0]:
            best = worst, coefficients
        if worst <= abs(solution[count - 1]) * (1 + mpf(10) ** -6):
            break
        extrema = peaks(errors)
        while len(extrema) > count:
            # Drop the weaker end, or the weakest neighbours: the signs must go on alternating.
            if len(extrema) == count + 1:
                extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
            else:
                k = min(range(len(extrema) - 1), key=lambda k: abs(errors[extrema[k]]) + abs(errors[extrema[k + 1]]))
                del extrema[k : k + 2]
        if len(extrema) < count:
            break
        chosen = extrema
    return best[1], best[0]


def peaks(errors: list[mpf]) -> list[int]:
    """The largest error of each run of one sign."""
    found: list[int] = []
    for i, e in enumerate(errors):
        if found and (e >= 0) == (errors[found[-1]] >= 0):
            if abs(e) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    return found


def rounded(value: mpf, dtype: str) -> float:
    with mp.workprec(24 if dtype == "f32" else 53):
        return float(+value)
