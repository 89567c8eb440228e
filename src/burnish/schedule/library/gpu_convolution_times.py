"""Times of torch's convolution kernels on a GPU for a given layout.

    seconds_of(spec, (True, True, False), clock)     forward and these gradients together; measured once, remembered

Tensor cores read channels-last memory directly; contiguous memory is converted before and after. Without tensor cores
(exact float32, windows of one channel) it is the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from ... import events
from ...concurrency.outside_errors import reraise_from_outside
from .autotune_library_calls import SMALL, Measurements, candidates, memory
from .call_candidates.convolution_backward_times import ConvBackwardSpec
from .call_specs import ConvSpec
from .candidate import Candidate
from .measure_candidates import Clock, Measurement, bind, random_tensor

NAME = "torch"

MOST_BYTES = 2 << 30
"""Largest size of the tensors made for measuring. Larger convolutions keep their layout."""


def seconds_of(
    spec: ConvSpec, wanted: tuple[bool, ...] | None, clock: Clock, memory: Measurements = memory
) -> float | None:
    """None where it was not measured. `wanted`: whether the gradients of x, the weight and the bias are needed; None
    where there are none."""
    backward = ConvBackwardSpec(replace(spec, bias=None), wanted) if wanted and any(wanted[:2]) else None  # type: ignore[arg-type]
    if spec.flops < SMALL or memory_of(spec, backward) > MOST_BYTES:
        return None
    key = f"{backward or spec} on {clock.about(spec.x.device)}, {ways()}"
    found = memory.measured(key, list, 0.0, is_thorough=True, by=lambda *_: measured(spec, backward, clock))
    if found is None or NAME not in found.least:
        return None
    if events.is_watched("kernels.measured"):
        events.emit("kernels.measured", text=f"{backward or spec}: {1e6 * found.least[NAME]:.1f} us")
    return found.least[NAME]


def ways() -> str:
    """The torch settings that decide which kernels it may use."""
    cudnn = torch.backends.cudnn
    switches = {
        "cuDNN": cudnn.enabled,
        cudnn.conv.fp32_precision: True,
        "benchmark": cudnn.benchmark,
        "deterministic": cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
    }
    return " ".join(name for name, is_on in switches.items() if is_on)


def memory_of(spec: ConvSpec, backward: ConvBackwardSpec | None) -> int:
    """Bytes of operands and result; the gradients take as much again."""
    types = [*spec.inputs.values(), candidates(spec)[0].output]
    return sum(type.bytes for type in types) * (1 if backward is None else 2)


def measured(spec: ConvSpec, backward: ConvBackwardSpec | None, clock: Clock) -> Measurement:
    device = spec.x.device
    with torch.no_grad(), torch.autocast(device.type, enabled=False), clock.on(device):
        try:
            seconds = clock.seconds(call_of(candidates(spec)[0]))
            if backward is not None:
                seconds += clock.seconds(gradients_of(backward))
        except RuntimeError as error:  # includes running out of memory
            reraise_from_outside(error)
            return Measurement({}, dropped={NAME: str(error).partition("\n")[0]})
    return Measurement({NAME: seconds})


def call_of(candidate: Candidate) -> Callable[[], object]:
    operands = bind(candidate, {name: random_tensor(type) for name, type in candidate.spec.inputs.items()})
    return lambda: candidate.run(*operands)


def gradients_of(spec: ConvBackwardSpec) -> Callable[[], object]:
    conv, wanted = spec.conv, list(spec.wanted)
    grad, x, weight = (random_tensor(type) for type in spec.inputs.values())
    channels = [conv.output_channels] if wanted[2] else None
    window = conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups
    return lambda: torch.ops.aten.convolution_backward.default(grad, x, weight, channels, *window, wanted)
