"""Combine functions of reductions: Triton functions that join two values, called by printed kernels.

NaN wins both max and min. Among equal values the first position wins, in a running reduction the last.
"""

import triton
import triton.language as tl


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def multiplied(a, b):
    return a * b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def larger_integer(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def smaller_integer(a, b):
    return tl.where(a < b, a, b)


@triton.jit
def first_argmax(a, i, b, j):
    equal = (a == b) | ((a != a) & (b != b))
    first = tl.where(equal, i < j, (a > b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def first_argmin(a, i, b, j):
    equal = (a == b) | ((a != a) & (b != b))
    first = tl.where(equal, i < j, (a < b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def first_argmax_integer(a, i, b, j):
    first = tl.where(a == b, i < j, a > b)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def first_argmin_integer(a, i, b, j):
    first = tl.where(a == b, i < j, a < b)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def last_argmax(a, i, b, j):
    equal = (a == b) | ((a != a) & (b != b))
    first = tl.where(equal, i > j, (a > b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def last_argmin(a, i, b, j):
    equal = (a == b) | ((a != a) & (b != b))
    first = tl.where(equal, i > j, (a < b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def last_argmax_integer(a, i, b, j):
    first = tl.where(a == b, i > j, a > b)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def last_argmin_integer(a, i, b, j):
    first = tl.where(a == b, i > j, a < b)
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def online(m, s, x):
    """A maximum and the sum of exp(x - maximum), with one more x. Of infinities nothing is added: `checked_online`."""
    d = x - m
    e = tl.where(d == d, tl.exp2(tl.abs(d) * -1.4426950408889634), 0.0)
    return tl.maximum(m, x, propagate_nan=tl.PropagateNan.ALL), tl.where(d > 0, s * e + 1.0, s + e)


@triton.jit
def joined_online(m, s, n, t):
    d = m - n
    e = tl.where(d == d, tl.exp2(tl.abs(d) * -1.4426950408889634), 0.0)
    return tl.maximum(m, n, propagate_nan=tl.PropagateNan.ALL), tl.where(d > 0, t * e + s, s * e + t)


@triton.jit
def checked_online(m, s):
    """The sum, or NaN if the maximum is not finite: some element minus the maximum is NaN."""
    return s + (m - m)
