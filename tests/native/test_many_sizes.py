"""Five and more symbolic sizes, which a graph compiled for equal ones keeps apart."""

import random

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.tensors.fit_size_formulas import NoFormula, Space, are_related

from .compare_sizes import called_with, same

ROOM = 12


@pytest.mark.parametrize("count", [2, 4, 5, 6, 8, 17])
@pytest.mark.parametrize("first", [2, 3, 7, 64])
def test_no_symbol_has_the_values_of_another(count, first):
    names = [f"s{k}" for k in range(count)]
    most = first + ROOM
    for space in (
        Space.around(dict.fromkeys(names, first)),
        Space.around(dict.fromkeys(names, first), dict.fromkeys(names[1::2], most)),
        Space.around(dict.fromkeys(names, 8 * first), units=dict.fromkeys(names[::2], 8)),
        Space.within(dict.fromkeys(names, (first, 2, None))),
        Space.within(dict.fromkeys(names, (first, 2, most))),
        Space.around(dict.fromkeys(names, first)).coprime_points(),
    ):
        columns = list(zip(*space.points, strict=True))
        assert [str(space.fit(column)) for column in columns] == names


def test_few_sizes_tell_symbols_apart():
    space = Space.within(dict.fromkeys("abcd", (2, 2, 3)))
    assert [str(space.symbol(k)) for k in range(4)] == [*"abcd"]
    with pytest.raises(NoFormula):
        Space.within(dict.fromkeys("abcdefghijklmnopq", (2, 2, 3)))
    assert Space.within(dict.fromkeys("ab", (2, 2, 2))).points[1] == (2, 2)
    assert are_related((1, 2, 5), (9, 7, 1)) and not are_related((1, 2, 5), (9, 7, 2))


def sums(x):
    return [x.sum([d for d in range(x.dim()) if d != kept]) for kept in range(x.dim())], x * 2


def padded(x):
    return F.pad(x, (0, 1)) * 2, x.transpose(0, x.dim() - 1).contiguous() + 1


def flat(x):
    return x.flatten().sin(), x.flatten(0, x.dim() - 2) + 1


@pytest.mark.falls_back("sizes")  # for products of more sizes than are tried
@pytest.mark.parametrize("count", [5, 6, 8])
@pytest.mark.parametrize("program", [sums, padded, flat])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_program_of_equal_sizes_serves_different_ones(count, program, trains, dynamic):
    compiled = burnish.compile(program, dynamic=dynamic)
    for shape in (
        [2] * count,
        [3] * count,
        range(2, 2 + count),
        range(1 + count, 1, -1),
        [4, 2, 3, 3, 2, 5, 2, 3][:count],
    ):
        shape = [*shape] if count < 8 else [min(size, 4) for size in shape]
        results, gradients = [], []
        for function in (program, compiled):
            torch.manual_seed(0)
            x = torch.randn(shape, requires_grad=trains)
            results.append(function(x))
            if trains:
                parts = [*results[-1][0], results[-1][1]] if program is sums else results[-1]
                sum((part * part.detach().cos()).sum() for part in parts).backward()
                gradients.append(x.grad)
        same(results[1], results[0])
        if trains:
            torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


SMALLER_OF_TWO = [(8, 20), (9, 21), (21, 20), (20, 20), (19, 21), (12, 20), (30, 9)]
BESIDE_OTHERS = [(8, 30), (9, 31), (10, 33), (40, 60), (80, 30), (80, 31), (70, 32), (60, 40)]


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_diagonal_ends_with_the_smaller_size(others, dynamic):
    def fn(x, *rest):
        return x.diagonal() * 2, x.diagonal().exp().sum(), [y + 1 for y in rest]

    calls = []
    for at, (rows, columns) in enumerate(BESIDE_OTHERS if others else SMALLER_OF_TWO):
        rest = [torch.ones(2, 8 + 2 * at + 3 * k + at * k) for k in range(others)]
        calls.append((torch.rand(rows, columns), *rest))
    assert called_with(fn, calls, dynamic).is_open


@pytest.mark.parametrize("dimensions", range(17, 22))
def test_more_digits_are_no_other_program(dimensions):
    def fn(x, y, z):
        return x * 2 + y.sum() + z.exp()

    others = torch.ones((1,) * dimensions), torch.ones(1, 1, 1, 1, 1, 1, 1, 3)
    seen = called_with(fn, [(torch.randn(size, 3), *others) for size in (8, 9, 10, 99, 100, 101, 999, 1000, 10000)])
    assert seen.segments == 2 and seen.is_open and not seen.why_apiece
    assert not [words for words in seen.words if words.startswith("does not hold")]


SMALLER = {
    "a diagonal": lambda x, z: (x.sin().diagonal().cos() * 2, z.exp()),
    "steps": lambda x, z: (torch.arange(0, x.shape[0], x.shape[1]).float().sin() * 2, z.exp()),
}


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("first", [(10, 20, 5), (40, 29, 30)], ids=str)
@pytest.mark.parametrize("name", SMALLER)
def test_the_smaller_of_sizes_is_known_at_no_corner_of_a_range_alone(name, first):
    a, b, c = first
    sizes = [first, (a + 1, b + 1, c + 1), (a + 2, b + 5, c + 2), (4 * a, 4 * b, 6 * c), (7 * a, b + 10, 4 * c)]
    sizes += [(4 * c, 3 * a, b), (3 * a, 7 * b, 5 * c), (a, b + 12, c), (b, a, c), (15 * a, 7 * b, 11 * c)]
    called_with(SMALLER[name], [(torch.randn(a, b), torch.randn(c)) for a, b, c in sizes])


def test_three_sizes_that_grow_are_checked_a_few_times():
    sizes = [(5 + k, 10 + 2 * k, 20 + k % 7) for k in range(24)]
    fn = lambda x, y: ((x.sin() * 2).sum(0), y.exp() * x.shape[0])  # noqa: E731
    seen = called_with(fn, [(torch.randn(a, b), torch.randn(c)) for a, b, c in sizes])
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert sum(words.startswith("holds") for words in seen.words) < 28, seen.words  # 7 more corners for each range


def turned(x):
    """Its transpose in the shape it had: a copy, but where the two last sizes are equal a view."""
    y = x.sin()
    return y, y.transpose(-1, -2).reshape(x.shape)


def turned_to_64(x):
    y = x.sin()
    return y, y.T.reshape(-1, 64)


def heads(x):
    """Heads and positions mixed up."""
    y = x.sin()
    return y, y.transpose(1, 2).reshape(x.shape)


EQUAL = {  # the first sizes, then those of corners and equal ones between them
    "two": (turned, [(8, 30), (9, 31), (10, 33), (20, 70), (32, 32), (35, 35), (16, 40)]),
    "three": (
        turned,
        [(2, 5, 20), (3, 6, 21), (4, 8, 22), (4, 16, 40), (5, 32, 60), (5, 25, 25), (6, 30, 30), (3, 22, 23)],
    ),
    "heads": (heads, [(2, *two, 4) for two in ((8, 30), (9, 31), (10, 33), (20, 70), (32, 32), (16, 40), (35, 35))]),
    "one and a constant": (turned_to_64, [(size, 64) for size in (40, 41, 42, 300, 64, 65)]),
    "one near a constant": (turned_to_64, [(size, 64) for size in (60, 61, 64, 62)]),
}


@pytest.mark.parametrize("trains", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
@pytest.mark.parametrize("name", EQUAL)
def test_sizes_that_are_equal_inside_a_range_are_checked(name, writes, trains):
    view, shapes = EQUAL[name]

    def fn(x):
        whole, part = view(x)
        if writes:
            part.mul_(2)
        return whole * 1, part * 1, part.exp(), whole if writes else part

    burnish.reset()
    compiled = burnish.compile(fn)
    for shape in shapes:
        found = []
        for function in (fn, compiled):
            torch.manual_seed(0)
            x = torch.randn(shape, requires_grad=trains)
            results = function(x)
            if trains:
                sum((y * y.detach().cos()).sum() for y in results).backward()
            found.append((*map(torch.Tensor.detach, results), x.grad))
        same(found[1], found[0], f"for {shape}")


@pytest.mark.falls_back("sizes")
@pytest.mark.parametrize("name", EQUAL)
def test_a_layout_that_a_program_asks_for_is_another_where_sizes_are_equal(name):
    def fn(x):
        part = EQUAL[name][0](x)[1]
        return part * 2 if part.is_contiguous() else part + 1

    called_with(fn, [(torch.randn(shape),) for shape in EQUAL[name][1]])


@pytest.mark.parametrize("units", [1, 8])
def test_three_sizes_that_change_at_random_are_checked_a_few_times(units):
    def fn(x, y, z):
        return torch.cat([x, y], 0).sin().sum(0) + 1, (x @ z).softmax(-1), z.exp()

    chance = random.Random(3)
    sizes = [[units * chance.randint(8, 64) for _ in range(3)] for _ in range(40)]
    seen = called_with(fn, [(torch.randn(a, 7), torch.randn(b, 7), torch.randn(7, c)) for a, b, c in sizes])
    assert seen.is_open and not seen.why_apiece and not seen.why_closed, seen.words
    assert sum(words.startswith(("holds", "does")) for words in seen.words) < 30, seen.words
