"""Affine expressions over loop variables: arithmetic, bounds, and division with remainder.

    >>> i, j = variable(0, 2), variable(1, 2)
    >>> split(i * 12 + j, 4, (3, 12))             # (12 i + j) divided by 4, where i < 3 and j < 12
    None
    >>> split(i * 12 + j, 12, (3, 12))
    (i0, i1)

A tensor index has one such expression for each dimension.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """offset + sum(coefficients[k] * variable k)."""

    offset: int
    coefficients: tuple[int, ...]

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.offset + other, self.coefficients)
        return Affine(
            self.offset + other.offset, tuple(a + b for a, b in zip(self.coefficients, other.coefficients, strict=True))
        )

    def __mul__(self, factor: int) -> Affine:
        return Affine(self.offset * factor, tuple(c * factor for c in self.coefficients))

    def span(self, extents: tuple[int, ...]) -> tuple[int, int]:
        """The smallest and the largest value."""
        low = high = self.offset
        for c, n in zip(self.coefficients, extents, strict=True):
            if c > 0:
                high += c * (n - 1)
            else:
                low += c * (n - 1)
        return low, high

    def __str__(self) -> str:
        terms = [f"i{k}" if c == 1 else f"{c}*i{k}" for k, c in enumerate(self.coefficients) if c]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return " + ".join(terms)

    __repr__ = __str__


Index = tuple[Affine, ...]

MOST_KEPT = 1000
"""Size of the cache of constants."""


@functools.cache
def variable(number: int, count: int) -> Affine:
    return Affine(0, tuple(int(k == number) for k in range(count)))


@functools.lru_cache(MOST_KEPT)
def constant(value: int, count: int) -> Affine:
    return Affine(value, (0,) * count)


def identity(shape: tuple[int, ...]) -> Index:
    """One variable for each dimension; the constant 0 for a dimension of size 1."""
    count = len(shape)
    return tuple(variable(k, count) if n != 1 else constant(0, count) for k, n in enumerate(shape))


def split(x: Affine, step: int, extents: tuple[int, ...]) -> tuple[Affine, Affine] | None:
    """Quotient and remainder of a division by `step`; None if they are not both affine."""
    if step == 1:
        return x, constant(0, len(x.coefficients))
    quotient = Affine(x.offset // step, tuple(c // step if c % step == 0 else 0 for c in x.coefficients))
    remainder = Affine(x.offset % step, tuple(0 if c % step == 0 else c for c in x.coefficients))
    low, high = remainder.span(extents)
    return (quotient, remainder) if low >= 0 and high < step else None


def split_hint(x: Affine, step: int, extents: tuple[int, ...]) -> tuple[int, int] | None:
    """The variable to split in two, and the extent of the inner one, so that `split` succeeds: (variable, extent)."""
    for k, (c, n) in enumerate(zip(x.coefficients, extents, strict=True)):
        if 0 < c < step < c * n and step % c == 0 and n % (step // c) == 0:
            return k, step // c
    return None


def cut(index: Index, variable: int, inner: int) -> Index:
    """The same index after `variable` is split into an outer variable and an inner one of extent `inner`."""

    def one(x: Affine) -> Affine:
        c = x.coefficients
        return Affine(x.offset, (*c[:variable], c[variable] * inner, *c[variable:]))

    return tuple(one(x) for x in index)
