"""Gradients of strided 1x1 convolutions with few channels."""

import pytest
import torch
from torch import nn

import burnish
from burnish.schedule.layouts.channels_last_strides import is_channels_last
from burnish.schedule.library.call_candidates import convolution_backward_times
from burnish.settings import patch


@pytest.mark.parametrize("channels", [3, 5, 32])
def test_channels_last_gradients_are_not_requested_where_they_corrupt_memory(channels, monkeypatch):
    last = set()
    seconds_of = convolution_backward_times.seconds_of

    def seconds(spec, seconds):
        if is_channels_last(spec.conv.x):
            last.add(spec.conv.x.shape[1])
            return None if channels < 16 else seconds_of(spec, seconds)
        return seconds_of(spec, seconds)

    monkeypatch.setattr("burnish.schedule.layouts.convolution_layout.gradient_seconds", seconds)
    model = nn.Sequential(nn.Conv2d(channels, 48, 1, 2), nn.BatchNorm2d(48), nn.Conv2d(48, 48, 3, padding=1))
    x = torch.randn(2, channels, 64, 64)
    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(model)
        for _ in range(2):
            model.zero_grad()
            compiled(x).square().mean().backward()
            found = model[0].weight.grad.clone()
            model.zero_grad()
            model(x).square().mean().backward()
            torch.testing.assert_close(found, model[0].weight.grad, rtol=1e-3, atol=1e-5)
    assert last == {48} if channels < 16 else last == {48, channels}
