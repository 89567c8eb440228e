"""Autotuning of large calls on a smaller proxy, whose fastest candidate is the same.

Measuring should take milliseconds. One product of [1024, 768] and [768, 50257] takes a third of a second. Sizes that
decide between candidates (the right matrix, the window, dtype, layout) are kept. Sizes that only repeat work (rows,
images) are reduced. A very long sum is shortened.

    >>> shrunk(LinearSpec(f32[65536, 768], f32[3072, 768]))
    linear f32[256, 768] f32[3072, 768]

In a DenseNet each layer has 32 channels more than the one before. Neighbours in such a series share a measurement:

    convolutions of 448, 480, 544, 576 and 608 channels are measured with 448
"""

from __future__ import annotations

from dataclasses import replace

from ...tensors.tensor_types import TensorType
from .call_specs import AttentionSpec, ConvSpec, IntegerSpec, LinearSpec, MatmulSpec, QuantizedSpec, RecurrentSpec, Spec

LARGE = 1_000_000_000
"""Specs with more operations (a few milliseconds of two cores) are shrunk."""

FEWEST_ROWS, FEWEST_COLUMNS, FEWEST_MATRICES, SHALLOWEST = 256, 2048, 4, 4096
"""Below these sizes the balance between packing, multiplying and starting threads changes."""


SERIES = 32
"""The step of a series of channels. Sizes that are 1, 3, 5 or 7 times a power of two of these steps stay: most networks
have only such sizes, and those of a power of two have conflicts in the cache that no other size shows."""


def shrunk(spec: Spec) -> Spec:
    """Returns the spec itself where it is not large, nor one of a series."""
    spec = with_channels_of_series(spec)
    if spec.flops <= LARGE:
        return spec
    match spec:
        case LinearSpec():
            spec = _with_size(spec, max(FEWEST_ROWS, _share(spec.x.shape[0], spec)), "x", 0, residual=0)
            if spec.flops >= 2 * LARGE:
                spec = _with_size(
                    spec, max(FEWEST_COLUMNS, _share(spec.weight.shape[0], spec)), "weight", 0, bias=0, residual=1
                )
            if spec.flops >= 2 * LARGE:
                spec = _with_size(spec, max(SHALLOWEST, _share(spec.x.shape[1], spec)), "x", 1, weight=1)
            return spec
        case IntegerSpec():
            return spec
        case QuantizedSpec():
            columns = max(FEWEST_COLUMNS, _share(spec.weight.shape[0], spec))
            return _with_size(spec, columns, "weight", 0, scales=0, shifts=0, bias=0)
        case ConvSpec():
            return _with_size(spec, max(1, _share(spec.x.shape[0], spec)), "x", 0, residual=0)
        case MatmulSpec(a=a) if a.ndim == 3:
            return _with_size(spec, max(FEWEST_MATRICES, _share(a.shape[0], spec)), "a", 0, b=0)
        case MatmulSpec():
            spec = _with_size(spec, max(FEWEST_ROWS, _share(spec.a.shape[0], spec)), "a", 0)
            if spec.flops >= 2 * LARGE:
                spec = _with_size(spec, max(FEWEST_COLUMNS, _share(spec.b.shape[1], spec)), "b", 1)
            if spec.flops >= 2 * LARGE:
                spec = _with_size(spec, max(SHALLOWEST, _share(spec.a.shape[1], spec)), "a", 1, b=0)
            return spec
        case AttentionSpec():
            return _with_size(spec, max(1, _share(spec.q.shape[0], spec)), "q", 0, k=0, v=0, mask=0)
        case RecurrentSpec():
            return _with_size(spec, max(1, _share(spec.x.shape[0], spec)), "x", 0)


def with_channels_of_series(spec: Spec) -> Spec:
    """A convolution with fewer input channels, or a product that computes their gradients with fewer outputs."""
    match spec:
        case ConvSpec(groups=1, transposed=False):
            return _with_size(spec, _in_series(spec.x.shape[1]), "x", 1, weight=1)
        case LinearSpec(is_frozen=False):
            return _with_size(spec, _in_series(spec.weight.shape[0]), "weight", 0, bias=0, residual=1)
    return spec


def _in_series(size: int) -> int:
    """The size, or at least 0.7 of it: the largest 5 or 7 times a power of two of steps where it is in a series."""
    steps, rest = divmod(size, SERIES)
    if rest or not steps or steps // (steps & -steps) < 9:
        return size
    power = 1 << (steps.bit_length() - 4)
    return SERIES * next(times * power for times in (14, 10, 7) if times * power <= steps)


def shrunk_weight(spec: LinearSpec, bytes: int) -> LinearSpec:
    """With fewer outputs, where the weight is larger than that: for products whose time is that of reading it."""
    outputs = max(bytes * spec.weight.shape[0] // max(spec.weight.bytes, 1), 1)
    return _with_size(spec, outputs, "weight", 0, bias=0, residual=1)


def _share(size: int, spec: Spec) -> int:
    """The fraction of a size at which the spec is no longer large."""
    return size * LARGE // spec.flops


def _with_size(spec: Spec, size: int, name: str, axis: int, **also: int) -> Spec:
    """The spec with `size` along an axis of one input, and of the others that share the axis. Never larger."""
    old = getattr(spec, name).shape[axis]
    if size >= old:
        return spec
    changes = {}
    for input, place in {name: axis, **also}.items():
        type = getattr(spec, input)
        # A broadcast mask has size 1.
        if type is not None and place < type.ndim and type.shape[place] == old:
            changes[input] = resized(type, place, size)
    return replace(spec, **changes)


def resized(type: TensorType, axis: int, size: int) -> TensorType:
    """The type with another size along an axis, and the same order of dimensions in memory. Gaps are kept."""
    shape = (*type.shape[:axis], size, *type.shape[axis + 1 :])
    order = sorted(range(type.ndim), key=lambda axis: (type.stride[axis], type.shape[axis]))
    is_dense, step, strides = True, 1, list(type.stride)
    new_step = 1
    for place in order:
        is_dense = is_dense and (type.stride[place] == step or type.shape[place] == 1)
        strides[place] = new_step
        step, new_step = step * type.shape[place], new_step * shape[place]
    return replace(type, shape=shape, stride=tuple(strides) if is_dense else type.stride)
