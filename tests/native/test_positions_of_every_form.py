"""Positions and counts that eager refuses, where sizes or numbers change: the same errors for every form of a call."""

import pytest
import torch

import burnish
import burnish.events

from ..recorded_events import recorded


class Marked(torch.Tensor):
    pass


PROGRAMS = {
    "select_scatter by keyword": lambda x, n: torch.select_scatter(input=x, src=torch.zeros(3), dim=0, index=n) * 2,
    "slice_scatter by keyword": lambda x, n: torch.slice_scatter(input=x, src=x[:2], dim=0, start=n, end=n + 2) * 2,
    "slice_scatter of a subclass": lambda x, n: x.as_subclass(Marked).slice_scatter(torch.zeros(2, 3), 0, 4, 6) * 2,
    "select_scatter of a subclass": lambda x, n: x.as_subclass(Marked).select_scatter(torch.zeros(3), 0, 4) * 2,
    "as_strided by keyword": lambda x, n: torch.as_strided(input=x * 1, size=(n, 2), stride=(3, 1)) * 2,
    "as_strided_copy": lambda x, n: torch.as_strided_copy(x, (5, 2), (3, 1)) * 2,
    "narrow_copy": lambda x, n: torch.narrow_copy(x, 0, 4, 3) * 2,
    "roll": lambda x, n: x.roll((5, 1), (0, 1)) * 2,
    "roll backwards": lambda x, n: torch.roll(input=x, shifts=-5, dims=0) * 2,
    "parts by keyword": lambda x, n: torch.stack([p.sum() for p in torch.split(tensor=x, split_size_or_sections=n)]),
    "parts in a list": lambda x, n: torch.split(x, split_size_or_sections=[n, x.shape[0] - n])[0] * 2,
    "the smallest": lambda x, n: torch.topk(input=x, k=n, dim=0, largest=False)[0],
    "the n-th": lambda x, n: x.kthvalue(n, dim=0, keepdim=True)[0],
}  # fmt: skip
CALLS = ((12, 5), (11, 4), (10, 7), (9, 3), (20, 19), (7, 7), (6, 7), (5, 6), (4, 2), (3, 1), (2, 2), (13, 4))


def outcome(fn, *args):
    try:
        return fn(*args)
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.falls_back("sizes", "refused")
def test_results_and_errors(name):
    with burnish.settings.patch(never_slower=False, segment_limit=100):
        compiled = burnish.compile(PROGRAMS[name])
        for rows, n in CALLS:
            x = torch.arange(rows * 3.0).view(rows, 3)
            expected, found = outcome(PROGRAMS[name], x, n), outcome(compiled, x, n)
            if isinstance(expected, type):
                assert found is expected
            else:
                torch.testing.assert_close(found, expected)


def test_memory_of_constant_shape_is_read_whatever_the_number_of_rows():
    with recorded("segment") as segments:
        compiled = burnish.compile(lambda x: x.as_strided((5, 2), (3, 1)) * 2)
        with burnish.settings.patch(never_slower=False):
            for rows in range(10, 20):
                x = torch.randn(rows, 3)
                torch.testing.assert_close(compiled(x), x[:5, :2] * 2)
    assert len(segments) <= 2
