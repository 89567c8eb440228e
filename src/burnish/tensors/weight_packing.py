"""Weight packing: the layout of packed weights for our own kernels, as plain data.

    pack = Panels(parts=((0, 768),), width=32, full=24, last=0, has_bias=True)
    packed, bias = pack(weight, bias)

A weight is [outputs, depth]. It is cut into *panels* of `width` outputs; a panel has, for each step of the sum, its
outputs side by side. A sum that is made in parts has the panels of one part after those of the other. It is data, so
that a compiled graph on disk can pack weights without the choice of a library being made again
(`compiler.program_cache`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class Panels(NamedTuple):
    """Called with a weight (and a bias), gives the tensors that the kernels take."""

    parts: tuple[tuple[int, int], ...]
    """Where each part of the sum begins, and its depth."""
    width: int
    full: int
    """How many panels of that width there are."""
    last: int
    """The width of the one after them, which outputs need not fill."""
    has_bias: bool = False
    is_finite_only: bool = False
    """The kernels add a product with nought where eager adds nothing, as at a border of zeros that is computed with:
    where the weight is infinite or no number, that product is NaN. Then None stands for each tensor."""

    def __call__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[torch.Tensor | None, ...]:
        weight = weight.detach()
        if self.is_finite_only:
            least, most = weight.aminmax()
            if not (math.isfinite(least) and math.isfinite(most)):
                return (None, None) if self.has_bias else (None,)
        if weight.ndim == 4:
            weight = weight.permute(0, 2, 3, 1)  # of a convolution: [outputs, channels, height, width]
        columns = self.full * self.width + self.last
        packed = torch.empty(sum(depth for _, depth in self.parts) * columns, dtype=weight.dtype, device="cpu")
        if len(self.parts) == 1:
            self.fill(packed, weight)
            return (packed, bias) if self.has_bias else (packed,)
        at, weight = 0, weight.flatten(1)
        for start, depth in self.parts:
            self.fill(packed[at : at + depth * columns], weight[:, start : start + depth])
            at += depth * columns
        return (packed, bias) if self.has_bias else (packed,)

    def fill(self, packed: torch.Tensor, weight: torch.Tensor) -> None:
        """From where it lies: a copy in the order of the sum would take as much memory again."""
        outputs, *inner = weight.shape
        depth, whole = math.prod(inner), self.full * self.width
        front = packed[: depth * whole].view(self.full, *inner, self.width)
        front.copy_(weight[:whole].unflatten(0, (self.full, self.width)).movedim(1, -1))
        back = packed[depth * whole :].view(*inner, self.last)
        rest = outputs - whole
        back[..., :rest].copy_(weight[whole:].movedim(0, -1))
        back[..., rest:].zero_()


class LayerPanels(NamedTuple):
    """Of a recurrent layer: called with the weights of each direction, gives packed ones for the product of all inputs,
    the biases that are added to it, and packed ones for the product of each step, those of one direction after those of
    the other."""

    inputs: Panels
    """Of the directions side by side."""
    hidden: Panels
    """Of each direction."""

    def __call__(self, *weights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """For each direction: of the input, of the hidden state, and the biases of both, where there are some."""
        each = 4 if self.inputs.has_bias else 2
        inputs = torch.cat([w.detach() for w in weights[::each]])
        biases = (
            [torch.cat([(a + b).detach() for a, b in zip(weights[2::4], weights[3::4], strict=True)])]
            if self.inputs.has_bias
            else []
        )
        hidden = torch.cat([packed for w in weights[1::each] for packed in self.hidden(w) if packed is not None])
        return *self.inputs(inputs, *biases), hidden
