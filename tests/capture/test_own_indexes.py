"""Objects with their own ``__index__``: when it is asked, what its results give, and where C code asks it."""

import collections
import decimal
import operator
import warnings

import numpy as np
import torch

from .harness import program


class One:
    def __index__(self):
        return True


@program(breaks=0)
def test_indexes_are_asked_in_order_and_told_in_errors():
    def fn(x):
        items, row, asked = list(range(10)), (1, 2), []

        class Noted:
            def __init__(self, n):
                self.n = n

            def __index__(self):
                asked.append(self.n)
                return self.n

        def get(container, key):
            return container[key]

        part = items[Noted(1) : Noted(7) : Noted(2)]
        del items[Noted(0) : Noted(3) : Noted(2)]
        for run in (
            lambda: row[Noted(2**70)],
            lambda: row * Noted(2**70),
            lambda: items[Noted(1) : Noted(2) : Noted(0)],
            lambda: collections.deque(row)[Noted(0) : Noted(1)],
            lambda: range(5)[Noted(2**70)],
            lambda: operator.setitem(row, Noted(0), 1),
        ):
            try:
                asked.append(run())
            except Exception as error:
                asked.append((type(error), str(error)))
        return x * 2, part, items, row[Noted(0) : Noted(2**70)], asked

    return fn, lambda i: (torch.ones(2),)


@program
def test_an_index_that_is_a_bool_warns_in_each_call():
    def fn(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            y = x * [1, 2][One()]
        return y, [str(each.message) for each in found]

    return fn, lambda i: (torch.ones(2),)


@program
def test_methods_that_ask_for_an_index_in_c_code():
    class Index:
        n = 1

        def __index__(self):
            return self.n

    index = Index()

    def fn(x, n):
        index.n = n
        row = 1, 2, 3
        found = [index in b"\x01", index in bytearray(b"\x02"), row.__getitem__(index), row.__mul__(index)]
        return x * 2, found, "abc".__getitem__(index), collections.deque(row) * index

    return fn, lambda i: (torch.ones(2), i % 3)


@program(breaks=0)
def test_builtins_ask_operands_for_their_operators():
    class Number:
        asked = 0

        def __divmod__(self, other):
            self.asked += 1
            return NotImplemented if other == 3 else (self.asked, other)

        def __rdivmod__(self, other):
            return other, self.asked

        def __pow__(self, other, modulus=None):
            return self.asked, other

        def __index__(self):
            return self.asked

    number = Number()

    def fn(x, n):
        found = [
            divmod(number, n),
            divmod(7, number),
            pow(number, n),
            hex(number),
            bin(number),
            oct(number),
            chr(number),
        ]
        try:
            divmod(number, 3)
        except TypeError as error:
            found.append(str(error))
        return x * 2, found, divmod(7, n + 1), pow(n, 2), pow(2, n, 5)

    return fn, lambda i: (torch.ones(2), i), number


@program
def test_numbers_of_a_subclass_are_not_asked_for_their_index():
    class Own(int):
        def __index__(self):
            return 77

        def __rdivmod__(self, other):
            return int(self), other

    def fn(x, n):
        return x + 1, int(n), divmod(2, n), range(n), hex(n)

    return fn, lambda i: (torch.ones(2), Own(3))


@program
def test_divmod_and_pow_of_numbers_and_tensors_of_other_libraries():
    class Other:
        def __rdivmod__(self, other):
            return type(other).__name__

        def __pow__(self, other):
            return NotImplemented

    def outcome(function, *operands):
        try:
            return function(*operands)
        except TypeError as error:
            return str(error)

    pairs = [(torch.ones(2), Other()), (torch.ones(2), 3), (Other(), decimal.Decimal(3)), (np.array(3), torch.ones(2))]

    def fn(x):
        y = x + 1
        return [outcome(function, *pair) for function in (divmod, pow) for pair in pairs], y * 2

    return fn, lambda i: (torch.ones(2),)
