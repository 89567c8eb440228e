"""Tensors that are inputs or views of other tensors, and gradients that are tangents or views of them, as data.

y = p.view(-1) + q        TangentGradient(0, 0, (("aten.view.default", ([3],), 0),)) makes the gradient of p
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..foundation.torch_private import CreationMeta, get_creation_meta, set_creation_meta

OF_SEVERAL = CreationMeta.MULTI_OUTPUT_NODE


def is_of_several(tensor: torch.Tensor) -> bool:
    """Whether it is a view from a function that returns several, such as `chunk`, or a view of one."""
    return tensor._is_view() and get_creation_meta(tensor) == OF_SEVERAL


@dataclass(frozen=True, slots=True)
class InputView:
    """An output that is an input, or a view of one."""

    input: int
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int = 0
    """In elements, from the input's start."""
    is_detached: bool = False
    is_of_several: bool = False
    """It comes from a function that returns several views. Autograd lets no such view be written to."""

    def of(self, inputs: Sequence[Any]) -> torch.Tensor:
        x = inputs[self.input]
        if self.shape is None:
            return x
        made = x.as_strided(self.shape, self.stride, x.storage_offset() + self.offset)
        if self.is_of_several:
            set_creation_meta(made, OF_SEVERAL)
        return made.detach() if self.is_detached else made


@dataclass(frozen=True, slots=True)
class TangentGradient:
    """A gradient that is a tangent, or a view of one."""

    at: int
    """Its position among backward's results."""
    flow: int
    """The position of the tangent among `flows`."""
    steps: tuple[tuple[str, tuple, int], ...]
    """Of each view on the way: torch's operator, its other arguments, and the index of the result."""

    def of(self, tangent: torch.Tensor) -> torch.Tensor:
        for name, args, position in self.steps:
            packet, _, overload = name.removeprefix("aten.").partition(".")
            made = getattr(getattr(torch.ops.aten, packet), overload)(tangent, *args)
            tangent = made if isinstance(made, torch.Tensor) else made[position]
        return tangent
