"""Decimal arithmetic depends on the thread's decimal context, which changes between calls."""

import decimal
import sys

import torch

from .caller_programs import program_with_caller

ONE, SEVEN = decimal.Decimal(1), decimal.Decimal(7)


def with_precision(fn, x, precision):
    with decimal.localcontext() as context:
        context.prec = precision
        return fn(x)


CALLS = [(torch.ones(2, dtype=torch.float64), precision) for precision in (4, 6, 4, 9)]


@program_with_caller(breaks=0)
def test_constants_outside_are_divided():
    def fn(x):
        return x * float(ONE / SEVEN), str(ONE / SEVEN)

    return fn, with_precision, CALLS


@program_with_caller(breaks=0)
def test_decimals_are_made():
    def fn(x):
        return x * float(1 / decimal.Decimal("7"))

    return fn, with_precision, CALLS


@program_with_caller
def test_the_decimal_context_is_read():
    def fn(x):
        return x + 1, decimal.getcontext().prec

    return fn, with_precision, CALLS


@program_with_caller
def test_one_context_has_another_precision_each_time():
    def fn(x):
        return x + 1, decimal.getcontext().prec

    def caller(fn, x, precision):
        before, decimal.getcontext().prec = decimal.getcontext().prec, precision
        try:
            return fn(x)
        finally:
            decimal.getcontext().prec = before

    return fn, caller, CALLS


@program_with_caller
def test_the_precision_changes_inside():
    def fn(x):
        with decimal.localcontext() as context:
            context.prec += 2
            y = x * float(ONE / SEVEN)
        return y, x * float(ONE / SEVEN)

    return fn, with_precision, CALLS


@program_with_caller(breaks=0)
def test_the_recursion_limit_is_another_one():
    def fn(x):
        return x * sys.getrecursionlimit()

    def caller(fn, x, extra):
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + extra)
        try:
            return fn(x) - before
        finally:
            sys.setrecursionlimit(before)

    return fn, caller, [(torch.ones(1, dtype=torch.float64), extra) for extra in (0, 100, 0)]
