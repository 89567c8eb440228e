"""A dry run for an absent GPU: kernels are compiled and shown, while the program runs eagerly."""

import pytest
import torch

pytest.importorskip("triton")

import burnish

from ..recorded_events import recorded


@pytest.fixture
def shown(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with recorded("kernels", datum="text") as found, burnish.settings.patch(null_device="sm_90", cache=False):
        yield found


def test_a_forward_and_backward_pass_shows_its_kernels_and_gradients_are_eagers(shown):
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.GELU())
    x = torch.randn(4, 16)
    want = torch.autograd.grad(layer(x).sum(), layer.parameters())
    got = torch.autograd.grad(burnish.compile(layer)(x).sum(), layer.parameters())
    torch.testing.assert_close(got, want)
    assert sum("def " in text for text in shown) >= 2
    assert all("bytes of machine code" in text for text in shown[1::2])


def test_a_kernel_says_where_it_comes_from(shown):
    def scaled(x):
        return torch.sin(x) * 2  # this line

    burnish.compile(scaled)(torch.randn(5))
    assert "in scaled" in shown[0] and "tl.load" in shown[0]


def test_a_wrong_architecture_is_an_error_that_lists_right_ones():
    for wrong in ("sm90", "sm_60", 90):
        with pytest.raises(burnish.UserError, match="sm_90"):
            burnish.settings.patch(null_device=wrong)
