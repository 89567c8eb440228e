"""Numbers that change from call to call, in lists that torch reads and in what itertools combines: few segments."""

import itertools

import pytest
import torch

from .test_numbers_in_containers import check

X = torch.arange(12.0)
ROWS = [(8, 0.5), (9, 1.5), (50, 2.5), (3, -1.0), (33, 0.0), (12, 7.25), (64, 1e10), (17, 3.0), (2, 0.125), (5, 9.5)]


def calls(*makers):
    return [lambda state, row=row: (X, *[make(*row) for make in makers]) for row in ROWS]


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize(
    "make", [lambda n, f: [n, n + 1, 2], lambda n, f: [f, f * 2], lambda n, f: [n, f, n], lambda n, f: [n]]
)
def test_a_tensor_of_a_list(make, backend):
    def program():
        def fn(x, numbers):
            return x[:, None] * torch.tensor(numbers), torch.as_tensor(numbers), numbers, numbers[0] + 1

        return fn, {}

    check(program, calls(make), most=3, backend=backend)


def test_lengths_make_a_mask():
    def program():
        def fn(x, lengths):
            mask = torch.arange(x.shape[0])[None] < torch.tensor(lengths)[:, None]
            return (x * mask).sum(1), sum(lengths), max(lengths)

        return fn, {}

    check(program, calls(lambda n, f: [n, n - 1, 4]), most=6)


def test_a_list_that_the_program_writes_to():
    def program():
        state = {"last": [1, 2]}

        def fn(x, n):
            first = torch.tensor(state["last"])
            state["last"][0] = n
            second = torch.tensor(state["last"])
            state["last"].append(n + 1)
            third = torch.tensor(state["last"])
            del state["last"][1]
            return x.sum() + first, second, third

        return fn, state

    check(program, calls(lambda n, f: n), most=4)


def test_numbers_and_other_values_share_a_list():
    def program():
        def fn(x, numbers):
            return torch.tensor(numbers), x

        return fn, {}

    kinds = [[1, 2], [2, 3], [2.0, 3], [True, 1], [1], [], [float("nan"), 1], [10**30, 1], [3, 4], [0.0, -0.0], [-1, 0]]
    check(program, [lambda state, kind=kind: (X, list(kind)) for kind in kinds])


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("combine", [itertools.product, lambda a, b: itertools.permutations((*a, *b), 2)])
def test_combinations_of_changing_numbers(combine, backend):
    def program():
        def fn(x, n, f):
            found = []
            for one, other in combine((1, n), (f, 3)):
                x = x * one + other
                found.append((one, other))
            return x, found

        return fn, {}

    check(program, calls(lambda n, f: n, lambda n, f: f), most=4, backend=backend)


def test_combinations_across_a_break():
    def program():
        def fn(x, n, log):
            for one, other in itertools.product([n, 2], repeat=2):
                x = x + one * other
                log.append(x.sum().item() > 1e9)
            return x, log, next(itertools.combinations([n, n], 2))

        return fn, {}

    check(program, calls(lambda n, f: n, lambda n, f: []))


def test_many_combinations():
    def program():
        def fn(x, n):
            for one, other in itertools.product([n, *range(40)], range(40)):
                if other == 39:
                    x = x + one
            return x

        return fn, {}

    check(program, calls(lambda n, f: n))
