"""A size that becomes a constant, or equal to another one, is guarded as such."""

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish import events

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class State:
    """Numbers and a tensor of the program's."""


def outcomes(program, calls, backend="eager"):
    """The results of the plain and the compiled program for each call. Both get arguments of their own."""
    with burnish.settings.patch(never_slower=False, segment_limit=100):
        compiled = burnish.compile(program, backend=backend)
        return [(call, program(*call()), compiled(*call())) for call in calls]


def check(program, calls, backend="eager"):
    for _, expected, found in outcomes(program, calls, backend):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def state(n, m, size=3):
    made = State()
    made.n, made.m, made.z = n, m, torch.ones(size)
    return made


def test_a_difference_of_two_numbers_that_stays_the_same():
    def program(x, s):
        nothing = torch.zeros(s.n - s.m)
        return (x + 1).shape, torch.ones((x * 2).shape[0]), nothing

    check(program, [lambda n=n: (torch.ones(n), state(n, n)) for n in (4, 5, 6, 7, 9, 20)])


@pytest.mark.falls_back("sizes")
def test_a_formula_whose_value_python_looks_at():
    def program(x):
        n = x.shape[0]
        return LETTERS[n // 2], (x + 1).shape[0], torch.ones((x * 2).shape[0])

    check(program, [lambda n=n: (torch.ones(n),) for n in (4, 5, 6, 7, 8, 9, 20, 21, 10, 11)])


def test_a_size_that_is_read_after_two_were_united():
    s = State()

    def program(x, goes_on):
        if not goes_on:
            return s.n + 0, x.sum(), s.z.sum()
        zeros = torch.zeros(s.n)
        y = x + zeros
        k = y.shape[0]
        z = s.z
        sizes = z.shape[0], torch.zeros(z.shape[0]).shape[0], z.exp().shape[0], x.shape[0], s.n
        return y * 2, torch.zeros(z.shape[0]) + k, z.sum(), sizes

    def call(n, d, z, goes_on=1):
        s.n, s.z = n, torch.ones(z)
        return torch.ones(d), goes_on

    sizes = [(5, 7, 5, 0), *((n, n, n) for n in (8, 9, 12, 30)), (31, 31, 30), (31, 31, 31)]
    check(program, [lambda some=some: call(*some) for some in sizes])


@pytest.mark.falls_back("sizes")
def test_a_remainder_that_is_the_same_for_multiples():
    def program(x):
        return torch.ones(x.shape[0] % 5 + 1) + 0.5, x * 2

    check(program, [lambda n=n: (torch.ones(n),) for n in (4, 5, 6, 7, 9, 11, 15, 20, 23, 29)], "burnish")


@pytest.mark.falls_back("sizes")
def test_a_size_without_a_formula_is_made_constant_once():
    def program(x):
        wide = F.interpolate(x[None, None], scale_factor=1.5)
        return wide, torch.ones(wide.shape[-1])

    words = []
    end = events.subscribe(lambda event: words.append(str(event.data.get("text"))))
    try:
        check(program, [lambda n=n: (torch.ones(n),) for n in (8, 9, 11, 14, 20)])
    finally:
        end()
    assert sum("compiled for one size" in text for text in words) == 1, words


SCALES = {n: float(n) for n in range(30)}


def test_a_size_that_a_call_took_before_it_became_constant():
    def program(x, s):
        n = x.shape[0]
        y = x.sin().reshape(n, 1, -1).expand(n, 2, 3) + torch.zeros(n + 1, 1, 1)[1:]
        s.rows = torch.ones(s.n - 1)
        return y * SCALES[n], s.rows * SCALES[s.n], torch.full((2,), s.n * 2)

    graphs = []
    end = events.subscribe(lambda event: graphs.append(event.data["graph_module"].graph), ("graph",))
    try:
        for backend in ("eager", "burnish"):
            calls = [
                lambda n=n, m=m: (torch.ones(n, 3), state(m, 0)) for n, m in repeated((4, 5), (5, 7), (6, 7), (7, 9))
            ]
            for _, expected, found in outcomes(program, calls, backend):
                torch.testing.assert_close(found, expected)
    finally:
        end()
    assert not any(node.users for graph in graphs for node in graph.find_nodes(op="placeholder") if node.name != "x")


def repeated(*sizes):
    """Each several times, so that its graph is compiled."""
    return [each for each in (*sizes, *sizes) for _ in range(4)]


def test_a_size_that_one_of_two_graphs_does_not_have():
    def program(x, w):
        total = x.sum()
        if total > 1000:
            return total
        return w * 2, x.shape[0] + 1

    for backend in ("eager", "burnish"):
        check(
            program, [lambda n=n: (torch.ones(n), torch.ones(3)) for n, _ in repeated((4, 0), (5, 0), (6, 0))], backend
        )
