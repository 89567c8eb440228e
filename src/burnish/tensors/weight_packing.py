"""Weight packing: packs weights into panels for our own matmul, convolution and recurrent kernels.

    pack = Panels(parts=((0, 768),), width=32, full=24, last=0, has_bias=True)
    packed, bias = pack(weight, bias)

A weight is [outputs, depth]. It is split into *panels* of `width` outputs. For each step of the reduction, a panel
stores its outputs contiguously. If the reduction is split into parts, the panels of one part follow those of the other.
The layout is plain data, so that a graph loaded from disk packs weights without choosing a library call again
(`compiler.program_serialization`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class Panels(NamedTuple):
    """The layout of one weight. Calling it with a weight (and a bias) returns the tensors that the kernels take."""

    parts: tuple[tuple[int, int], ...]
    """The start and the depth of each part of the reduction."""
    width: int
    full: int
    """The number of panels of that width."""
    last: int
    """The width of the last panel, which may be padded."""
    has_bias: bool = False
    is_finite_only: bool = False
    """The kernels multiply by zeros where eager adds nothing, as at a zero-padded border. An infinite or NaN weight
    would give NaN there, so packing returns None for each tensor."""
    in_pairs: bool = False
    """Numbers of 16 bits are packed in pairs, neighbours along the depth. Depths count pairs."""

    def __call__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[torch.Tensor | None, ...]:
        weight = weight.detach()
        if self.is_finite_only:
            least, most = weight.aminmax()
            if not (math.isfinite(least) and math.isfinite(most)):
                return (None, None) if self.has_bias else (None,)
        if weight.ndim == 4:
            weight = weight.permute(0, 2, 3, 1)  # of a convolution: [outputs, channels, height, width]
        if self.in_pairs:
            weight = as_pairs(weight)
        columns = self.full * self.width + self.last
        packed = torch.empty(sum(depth for _, depth in self.parts) * columns, dtype=weight.dtype, device=weight.device)
        if len(self.parts) == 1:
            self.fill(packed, weight)
            return (packed, bias) if self.has_bias else (packed,)
        at, weight = 0, weight.flatten(1)
        for start, depth in self.parts:
            self.fill(packed[at : at + depth * columns], weight[:, start : start + depth])
            at += depth * columns
        return (packed, bias) if self.has_bias else (packed,)

    def fill(self, packed: torch.Tensor, weight: torch.Tensor) -> None:
        """Copy directly from the weight's own layout: a reordered copy would double the memory."""
        outputs, *inner = weight.shape
        depth, whole = math.prod(inner), self.full * self.width
        front = packed[: depth * whole].view(self.full, *inner, self.width)
        front.copy_(weight[:whole].unflatten(0, (self.full, self.width)).movedim(1, -1))
        back = packed[depth * whole :].view(*inner, self.last)
        rest = outputs - whole
        back[..., :rest].copy_(weight[whole:].movedim(0, -1))
        back[..., rest:].zero_()


def as_pairs(weight: torch.Tensor) -> torch.Tensor:
    """Neighbours of 16 bits as one number of 32 bits: half as many along the last dimension."""
    *outer, depth = weight.shape
    flat = weight.reshape(-1)
    if flat.storage_offset() % 2 or not flat.is_contiguous():  # a view of the dtype begins at a multiple of its size
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.int32).view(*outer, depth // 2)


class TransformedPanels(NamedTuple):
    """The layout of a 3 x 3 window that is transformed for tiles of 4 x 4 pixels: a packed matrix for each of the 16
    positions, one after the other. See `schedule.library.own_kernels.winograd_convolution`."""

    panels: Panels
    """Of each matrix."""

    def __call__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[torch.Tensor | None, ...]:
        if not is_even(weight.detach()):
            return (None, None) if self.panels.has_bias else (None,)
        sides = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
        matrices = (sides @ weight.detach().double() @ sides.T).flatten(2).permute(2, 0, 1).to(weight.dtype)
        if not matrices.isfinite().all():
            return (None, None) if self.panels.has_bias else (None,)
        packed = torch.cat([self.panels(matrix)[0] for matrix in matrices])  # type: ignore[misc]
        return (packed, bias) if self.panels.has_bias else (packed,)


class LayerPanels(NamedTuple):
    """The layout of a recurrent layer. Calling it with the weights of each direction returns: packed weights for the
    product of all inputs, its bias, and packed weights for the product of each step, one direction after the other."""

    inputs: Panels
    """For all directions together."""
    hidden: Panels
    """For each direction."""

    def __call__(self, *weights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """`weights`: for each direction the input weight, the hidden weight and, if there are any, both biases."""
        each = 4 if self.inputs.has_bias else 2
        inputs = torch.cat([w.detach() for w in weights[::each]])
        biases = (
            [torch.cat([(a + b).detach() for a, b in zip(weights[2::4], weights[3::4], strict=True)])]
            if self.inputs.has_bias
            else []
        )
        hidden = torch.cat([packed for w in weights[1::each] for packed in self.hidden(w) if packed is not None])
        return *self.inputs(inputs, *biases), hidden


LEAST_SHARE = 1 / 32


def is_even(weight: torch.Tensor) -> bool:
    """Whether the places of a window have weights of similar size. The sum of a pixel's parts in the transformed
    products is its weight; if that is much smaller than its neighbours, or 0 as in a masked convolution, it is a
    difference of large numbers."""
    norms = weight.flatten(2).norm(dim=1)  # of each output and place
    whole, masked = norms.norm(dim=0), (norms == 0).any(1) & (norms != 0).any(1)
    return bool(whole.min() >= LEAST_SHARE * whole.max()) and not masked.any()


LAYOUTS = (Panels, TransformedPanels, LayerPanels)
