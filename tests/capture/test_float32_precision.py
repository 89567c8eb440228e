"""Float32 matmul precision, set through torch's old or new interface, is guarded and causes no break."""

import warnings

import pytest
import torch
from torch import nn

import burnish

from ..recorded_events import recorded


@pytest.mark.parametrize("place", ["fp32_precision", "cuda.matmul.fp32_precision", "mkldnn.matmul.fp32_precision"])
def test_it_may_be_set_through_the_newer_interface(backends, place):
    """After which `torch.get_float32_matmul_precision` raises an error."""
    *inner, name = place.split(".")
    for part in inner:
        backends = getattr(backends, part)
    setattr(backends, name, "tf32")
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    compiled = burnish.compile(model, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))


def test_another_one_on_gpus_is_another_program(backends):
    compiled, x = burnish.compile(lambda x: x @ x), torch.randn(4, 4)
    with recorded("guards.missed") as told:
        for precision in ("ieee", "tf32", "ieee"):
            backends.cuda.matmul.fp32_precision = precision
            for _ in range(2):
                compiled(x)
    assert len(told) == 1 and "float32 precision on GPUs" in str(told[0].data), told
