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
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def smaller(a, b):
    return tl.where((a < b) | (a != a), a, b)


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
