"""What is measured in the place of a spec for training: less of it, or one like it that was measured already.

    alike = Alike()
    alike.of(ConvSpec(f32[4, 64, 56, 56], f32[128, 64, 1, 1]))      itself: it is measured
    alike.of(ConvSpec(f32[4, 96, 56, 56], f32[128, 96, 1, 1]))      the first one again

Where weights change with every step nothing is packed, and what there is to choose from (eager's call, oneDNN's, a
product of matrices, how memory lies) changes its order slowly with the sizes. A DenseNet has 60 windows of one pixel,
none like the other: to measure each, forward and backward and in both layouts, took longer than all the rest of
compiling. So sizes that are near one another share a measurement, and once a graph has had its time nothing is
measured but kinds of calls that have not been seen; seconds go by the number of operations.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import log2
from typing import TypeVar

from ...tensors.types import TensorType
from .specs import ConvSpec, LinearSpec

NEAR = 0.6
"""Sizes of which none is more than half as large again as the other are near: the binary logarithm of that."""

MOST_SECONDS = 0.35
"""For measuring in one graph: of what its heaviest layers are, the rest is like them."""

WHOLE_VECTORS = 16
"""Channels that are no multiple of this are computed otherwise."""

LARGE = 150_000_000
"""From so many operations on (a millisecond of two cores) a spec for training is shrunk. Differences that are lost in
the noise of so little are small in the large as well."""


Layer = TypeVar("Layer", ConvSpec, LinearSpec)


class Alike:
    """For one graph."""

    def __init__(self, most: float = MOST_SECONDS):
        self.most, self.spent = most, 0.0
        self.known: dict[Hashable, dict[tuple[int, ...], ConvSpec | LinearSpec]] = {}

    def of(self, spec: Layer, what: Hashable = None) -> Layer:
        """The spec itself where it is to be measured. `what` of it: forward, or which gradients."""
        known = self.known.setdefault((what, kind_of(spec)), {})
        sizes = sizes_of(spec)
        found = min(known, key=lambda other: sum(steps(sizes, other)), default=None)
        if found is not None and (self.spent >= self.most or max(steps(sizes, found)) <= NEAR):
            return known[found]  # type: ignore[return-value]
        known[sizes] = spec
        return spec


def steps(sizes: tuple[int, ...], others: tuple[int, ...]) -> list[float]:
    """How many times twice as large, or half."""
    return [abs(log2(a / b)) for a, b in zip(sizes, others, strict=True)]


def sizes_of(spec: ConvSpec | LinearSpec) -> tuple[int, ...]:
    if isinstance(spec, LinearSpec):
        return *spec.x.shape, spec.weight.shape[0]
    return *spec.x.shape, spec.output_channels


def kind_of(spec: ConvSpec | LinearSpec) -> Hashable:
    """All but the sizes."""
    types = spec.x, spec.weight, spec.bias, spec.residual
    common = *map(order_of, types), spec.activation, spec.keeps_nan, *(n % WHOLE_VECTORS == 0 for n in (
        spec.x.shape[1], sizes_of(spec)[-1]))
    if isinstance(spec, LinearSpec):
        return common
    groups = "each" if spec.groups == spec.x.shape[1] else spec.groups
    return (*common, spec.weight.shape[2:], spec.stride, spec.padding, spec.dilation, spec.transposed,
            spec.output_padding, groups)


def order_of(type: TensorType | None) -> Hashable:
    """In which order its dimensions lie, and which of them have gaps behind them."""
    if type is None:
        return None
    axes = sorted((axis for axis, size in enumerate(type.shape) if size != 1), key=lambda axis: type.stride[axis])
    step, has_gap = 1, []
    for axis in axes:
        has_gap.append(type.stride[axis] != step)
        step = type.stride[axis] * type.shape[axis]
    return type.dtype, type.device, tuple(axes), tuple(has_gap)
