"""Sizes for which a part of the computation has no elements, or too few: eager's errors, values and strides."""

import pytest
import torch
import torch.nn.functional as F

import burnish

SIZES = (8, 9, 11, 10, 5, 4, 3, 2, 6, 7, 4, 3)
"""After the first three rows, nothing is left of three."""

PROGRAMS = {
    "the largest": lambda x: x[3:].max(),
    "the largest of each column": lambda x: x[3:].amax(0),
    "the position of the largest": lambda x: x[3:].argmax(0),
    "the smallest before the end": lambda x: x[:-3].min(0).values,
    "the deviation": lambda x: x[3:].std(0),
    "the variance": lambda x: x[3:].var(0, correction=1),
    "the largest magnitude": lambda x: x[3:].norm(p=float("inf")),
    "the mean": lambda x: x[3:].mean(),
    "softmax": lambda x: x[3:].softmax(0),
    "ones of its size": lambda x: torch.ones(2, x.shape[0] - 3) * 2,
    "a diagonal of its size": lambda x: torch.eye(3, x.shape[0] - 3) * 2,
    "the largest of a range": lambda x: torch.arange(x.shape[0] - 3).max() + x,
    "reflected": lambda x: F.pad(x.t()[None], (3, 0), mode="reflect"),
    "reflected on both sides": lambda x: F.pad(x[None, None], (1, 1, 2, 4), mode="reflect"),
    "repeated at the end": lambda x: F.pad(x[3:].t()[None], (3, 0), mode="replicate"),
    "windows": lambda x: F.max_pool1d(x.t()[None], 3),
    "the second row": lambda x: x[3:][1] * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.falls_back("sizes", "refused")
def test_results_and_errors_where_little_is_left(name):
    fn = PROGRAMS[name]
    with burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(fn, fullgraph=True)
        for size in SIZES:
            x = torch.randn(size, 4)
            try:
                expected = fn(x)
            except (RuntimeError, IndexError) as error:
                with pytest.raises(type(error)):
                    compiled(x)
                continue
            found = compiled(x)
            torch.testing.assert_close(found, expected, equal_nan=True)
            assert found.stride() == expected.stride()
