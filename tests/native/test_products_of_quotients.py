"""Sizes of results that are products of a size and of quotients of the same size: those of square images."""

import pytest
import torch
import torch.nn.functional as F

from .compare_sizes import called_with

PROGRAMS = {
    "a spectrum": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=x.shape[-2:]).relu(),
    "a smaller image": lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic").relu(),
    "a pooled image": lambda x: F.avg_pool2d(x, (2, 1)).sin() * 2,
    "other parts of both sides": lambda x: F.avg_pool2d(x, (2, 3)).sin() * 2,
    "rows of windows": lambda x: x.unfold(2, 4, 4).sin().sum(-1),
}
SIZES = (8, 9, 50, 3, 33, 12, 64, 17, 21, 40, 5, 29)


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_image_of_two_sides_that_grow_together(name, width):
    seen = called_with(PROGRAMS[name], [(torch.randn(1, 2, n + 8, n + 8 + width),) for n in SIZES])
    assert seen.segments == 2 and seen.is_open and not seen.why_apiece
