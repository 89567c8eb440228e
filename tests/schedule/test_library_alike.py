"""For training, sizes that are near one another share a measurement, and measuring ends."""

from dataclasses import replace

import pytest
import torch

import burnish
from burnish import events
from burnish.schedule.library import Alike, ConvBackwardSpec, ConvSpec, Memory, candidates, choose, in_channels_last
from burnish.schedule.library.alike import LARGE, MOST_SECONDS
from burnish.schedule.library.choose import key_of
from burnish.schedule.library.shrink import shrunk
from burnish.settings import patch

from .library_references import f32

ONE, SAME = (1, 1), (0, 0)


def window(channels, pixels=28, outputs=128):
    return ConvSpec(f32(4, channels, pixels, pixels), f32(outputs, channels, 1, 1), None, None, None, ONE, SAME, ONE)


def test_sizes_that_are_near_share_a_measurement():
    alike = Alike()
    first = window(64)
    assert alike.of(first) is first
    assert alike.of(window(96)) is first
    assert alike.of(window(192)) == window(192)
    assert alike.of(window(160)) == window(192), "the nearest"


def test_what_is_computed_otherwise_shares_nothing():
    alike, first = Alike(), window(64)
    alike.of(first)
    others = [window(65), in_channels_last(first), replace(first, stride=(2, 2)), replace(first, bias=f32(128)),
              ConvSpec(first.x, f32(128, 64, 3, 3), None, None, None, ONE, ONE, ONE)]
    assert [alike.of(other) for other in others] == others
    assert alike.of(window(96), (True, True, False)) == window(96), "backward is not like forward"


def test_when_time_is_up_the_nearest_of_its_kind_does():
    alike = Alike()
    first, second = window(64), window(256)
    alike.of(first), alike.of(second)
    alike.spent = MOST_SECONDS
    assert alike.of(window(1024)) is second
    other = replace(first, stride=(2, 2))
    assert alike.of(other) is other, "of its kind there is nothing yet"


def test_seconds_of_a_layer_that_is_like_another_go_by_its_operations():
    memory, alike = Memory(), Alike()
    small = shrunk(window(64), LARGE)
    memory.load({key_of(small): "; ".join(f"{c.name}={k + 1e-3}" for k, c in enumerate(candidates(small)))})
    first, second = (choose(window(n), seconds=0, memory=memory, alike=alike) for n in (64, 96))
    assert second.seconds == pytest.approx(1.5 * first.seconds)
    assert second.candidate.name == first.candidate.name == "convolution"
    assert second.candidate.spec == window(96)
    assert len(memory.export()) == 1, "nothing else was measured"


def test_layers_whose_weights_stay_are_measured_one_by_one():
    memory, alike = Memory(), Alike()
    for channels in (64, 96):
        choose(replace(window(channels, 8, 16), is_frozen=True), seconds=0, memory=memory, alike=alike)
    assert not alike.known


def test_a_network_in_training_measures_its_heaviest_layers_and_few_others(monkeypatch):
    asked = []
    seen = Alike.of

    def of(self, spec, what=None):
        found = seen(self, spec, what)
        if what is None and isinstance(spec, ConvSpec):
            asked.append((spec.flops, found is spec))
        return found

    monkeypatch.setattr(Alike, "of", of)
    module = torch.nn.Sequential(*[torch.nn.Conv2d(a, b, 1) for a, b in ((16, 32), (32, 64), (64, 64), (64, 80))])
    plans = []
    stop = events.subscribe(lambda event: plans.append(event.data["plan"]) if event.kind == "loops" else None)
    try:
        with patch(never_slower=False, on_error="raise"):
            burnish.compile(module)(torch.randn(4, 16, 16, 16)).sum().backward()
    finally:
        stop()
    assert plans
    assert asked[0][0] == max(flops for flops, _ in asked)
    assert not all(is_measured for _, is_measured in asked)


def test_gradients_are_measured_for_fewer_images():
    from burnish.schedule.library.convolution_backward import shrunk as fewer
    spec = ConvBackwardSpec(window(256, 56), (True, True, False))
    assert spec.flops > LARGE
    assert fewer(spec).conv.x.shape[0] == 1
