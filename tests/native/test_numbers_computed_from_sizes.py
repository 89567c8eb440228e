"""Integers that Python computes from sizes, by way of floats or remainders, and that decide about sizes of results."""

import math

import pytest
import torch
import torch.nn.functional as F

from .compare_sizes import called_with

COUNTS = (8, 9, 50, 3, 33, 12, 64, 17, 21, 40, 5, 29, 11, 48, 77, 14, 35, 26, 90, 7)


def images(height, width=None):
    return torch.randn(1, 2, height, width or height)


@pytest.mark.parametrize("scale", [1.5, 1.3, 0.7, 2.5, 0.5])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_an_image_is_resized_by_a_fraction(scale, mode):
    def resize(x):
        height, width = x.shape[-2:]
        return F.interpolate(x, size=(int(height * scale), int(width * scale)), mode=mode).relu()

    seen = called_with(resize, [(images(n + 8),) for n in COUNTS])
    assert seen.segments == 2 and seen.is_open and not seen.why_apiece
    seen = called_with(resize, [(images(n + 8, n % 7 + 20),) for n in COUNTS])
    assert seen.segments <= 3 and seen.is_open and not seen.why_apiece


@pytest.mark.parametrize("rounded", [int, math.floor, math.ceil, round])
def test_the_shape_is_read_after_a_resize(rounded):
    def resize(x):
        y = F.interpolate(x, size=(rounded(x.shape[2] * 1.3), 8), mode="nearest")
        return y.view(y.shape[1], -1).softmax(-1), y.shape

    seen = called_with(resize, [(images(n + 8, 12),) for n in COUNTS])
    assert seen.segments == 2 and seen.is_open and not seen.why_apiece


def test_a_fraction_of_the_rows_is_selected():
    def best(x):
        count = int(x.shape[0] * 0.3) + 2
        return x.topk(count, 0)[0].sin() * count

    seen = called_with(best, [(torch.randn(n, 4),) for n in COUNTS])
    assert seen.segments <= 3 and seen.is_open


def test_both_parts_of_the_rows():
    def parts(x):
        at = int(x.shape[0] * 0.8)
        return torch.cat([x[:at].sin(), x[at:] * 2]), x[:at].sum(0)

    seen = called_with(parts, [(torch.randn(n + 10, 4),) for n in COUNTS])
    assert seen.segments <= 3


def test_an_integer_fraction_without_a_formula():
    seen = called_with(
        lambda x: torch.zeros(x.shape[0] * 13 // 10, 4) + x.sum(0), [(torch.randn(n, 4),) for n in COUNTS]
    )
    assert seen.segments <= 3 and seen.is_open and not seen.why_apiece


def test_what_divides_the_size_stays_related_to_it():
    """With a symbol for the remainder the rows would not be whole groups."""

    def groups(x):
        padded = F.pad(x, (0, 0, 0, -x.shape[0] % 8))
        return padded.view(-1, 8, 4).softmax(1)

    seen = called_with(groups, [(torch.randn(n, 4),) for n in COUNTS])
    assert seen.segments == 2


def test_a_number_that_equals_a_size_at_some_sizes():
    def twice(x):
        count = int(x.shape[0] * 1.2)
        y = torch.ones(count, 3)
        return (y + 1 if count == x.shape[0] else y - 1), y.t().reshape(y.shape), count

    called_with(twice, [(torch.randn(n, 3),) for n in (9, 10, 4, 3, 2, 5, 12, 3, 4, 40)])
