"""Reduction polyfills: Python versions of ``sum``, ``any``, ``min``, ``reduce``, ``bisect`` and similar functions.

    max(layers, key=cost)        # cost() is the user's function: a loop that calls it is interpreted

Elements are read in the order of C code, and no further than C code reads.
"""

from __future__ import annotations

import operator

MISSING = object()


def bisect_right(a, x, lo=0, hi=None, *, key=None):
    return _bisect(a, x, lo, hi, key, False)


def bisect_left(a, x, lo=0, hi=None, *, key=None):
    return _bisect(a, x, lo, hi, key, True)


def insort_left(a, x, lo=0, hi=None, *, key=None):
    at = _bisect(a, x if key is None else key(x), lo, hi, key, True)
    a.insert(at, x)


def insort_right(a, x, lo=0, hi=None, *, key=None):
    at = _bisect(a, x if key is None else key(x), lo, hi, key, False)
    a.insert(at, x)


def _bisect(items, x, low, high, key, is_left):
    if low < 0:
        raise ValueError("lo must be non-negative")
    if high is None:
        high = len(items)
    while low < high:
        middle = (low + high) // 2
        item = items[middle] if key is None else key(items[middle])
        goes_right = item < x if is_left else not x < item
        if goes_right:
            low = middle + 1
        else:
            high = middle
    return low


def sum_(items, /, start=0):
    total = start
    for value in items:
        total = total + value
    return total


def prod(items, /, *, start=1):
    product = start
    for value in items:
        product = product * value
    return product


def sum_corrected(items, /, start=0):
    """Since 3.12 ``sum`` corrects what rounding loses among floats: C code adds them, from the first to the first other
    object, unless a sum of ints before them needs more than 64 bits."""
    rest, total, ints = iter(items), start, []
    if type(total) is int:
        ints.append(total)
        for value in rest:
            total = total + value
            if type(value) not in (int, bool):
                break
            ints += value, total
        else:
            return total
    for kind in (float, complex):
        if type(total) is not kind or not fit_in_64_bits(ints):
            continue
        numbers = []
        for value in rest:
            if kind is float and type(value) is not int and issubclass(type(value), int):
                value = operator.index(value)  # its own operators are not asked
            if type(value) not in (kind, float) and not (type(value) is int and -(1 << 63) <= value < 1 << 63):
                total = sum(numbers, total) + value
                break
            numbers.append(value)
        else:
            return sum(numbers, total)
    for value in rest:
        total = total + value
    return total


def fit_in_64_bits(numbers):
    for number in numbers:  # noqa: SIM110
        if not -(1 << 63) <= number < 1 << 63:
            return False
    return True


def product(sizes):
    total = 1
    for size in sizes:
        total = total * size
    return total


def number_of_elements(sizes):
    total = product(sizes)
    return total if total < 1 << 63 else (total + (1 << 63)) % (1 << 64) - (1 << 63)  # torch multiplies in 64 bits


def sum_of_bytes(items, nothing, start):
    iter(items)
    return sum(nothing, start)


def any_(items):
    for value in items:  # noqa: SIM110
        if value:
            return True
    return False


def all_(items):
    for value in items:  # noqa: SIM110
        if not value:
            return False
    return True


def minimum(*args, key=None, default=MISSING):
    return _extreme("min", args, key, default, False)


def maximum(*args, key=None, default=MISSING):
    return _extreme("max", args, key, default, True)


def _extreme(name, args, key, default, largest):
    if len(args) > 1 and default is not MISSING:
        raise TypeError(f"Cannot specify a default for {name}() with multiple positional arguments")
    best = best_key = MISSING
    numbers = []  # at the start: comparing them has no effects, and in a formula of all of them each is read once
    for value in args if len(args) > 1 else args[0]:
        if key is None and best is MISSING and type(value) in NUMBERS and len(numbers) < MOST_IN_ONE_FORMULA:
            numbers.append(value)
            continue
        if numbers:
            best = best_key = extreme_number(numbers, largest)
            numbers = []
        value_key = value if key is None else key(value)
        if best is MISSING or (value_key > best_key if largest else value_key < best_key):
            best, best_key = value, value_key
    if numbers:
        return extreme_number(numbers, largest)
    if best is MISSING:
        if default is MISSING:
            raise ValueError(
                f"{name}() iterable argument is empty" if EMPTY_SAYS_ITERABLE else f"{name}() arg is an empty sequence"
            )
        return default
    return best


NUMBERS = (int, float)
MOST_IN_ONE_FORMULA = 64


def extreme_number(numbers, largest):
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) < MOST_IN_ONE_FORMULA:
        return max(*numbers) if largest else min(*numbers)
    best = numbers[0]
    for value in numbers:
        if value > best if largest else value < best:
            best = value
    return best


try:
    max([])
except ValueError as _error:
    EMPTY_SAYS_ITERABLE = "iterable argument" in str(_error)


def reduce(function, items, initial=MISSING):
    try:
        iterator = iter(items)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    if initial is MISSING:
        try:
            total = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        total = initial
    for value in iterator:
        total = function(total, value)
    return total


def join(separator, items):
    return separator.join([value for value in items])  # noqa: C416


def next_or(iterator, default):
    try:
        return next(iterator)
    except StopIteration:
        return default
