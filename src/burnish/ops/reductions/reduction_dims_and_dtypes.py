"""Dimensions and dtypes of reductions, for their shape rules and their decompositions.

normalized_dims(x, [-1])           (1,)
reduced(f32[2, 3], 1, True)        f32[2, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tensors.tensor_types import TensorType
from ...tensors.type_promotion import compute_dtype, kind
from ..operator_record import Arguments, NoRule, call_shape, fresh, wrapped_dim
from ..shapes.views import REAL_OF

Dims = Sequence[int] | int | None


def normalized_dims(x: Any, dims: Dims) -> tuple[int, ...]:
    """The nonnegative, sorted dimensions; None and an empty list mean all."""
    if dims is None or not isinstance(dims, int) and not len(dims):
        return tuple(range(x.ndim))
    found = tuple(sorted(wrapped_dim(d, x.ndim) for d in ([dims] if isinstance(dims, int) else dims)))
    return found if x.ndim else ()


def reduced_by(a: Arguments) -> tuple[tuple[int, ...], bool]:
    """The dimensions that a call reduces, and whether it keeps them with size 1."""
    return normalized_dims(a.self, getattr(a, "dim", None)), getattr(a, "keepdim", False)


def count(x: Any, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[d] for d in dims)


def widened(g: Any, x: Any) -> Any:
    """The operand in its compute dtype."""
    return g.convert(x, compute_dtype(x.dtype))


def require_real(x: Any) -> None:
    if kind(x.dtype) == 3:
        raise NoRule("complex numbers")


def floats(x: Any) -> None:
    if kind(x.dtype) != 2:
        raise NoRule(f"{x.dtype}")


def summed(g: Any, x: Any, dims: tuple[int, ...], keep: bool) -> Any:
    return g.reduce("sum", x, dims, keep) if x.ndim else x


def mean(g: Any, x: Any, dims: tuple[int, ...]) -> Any:
    return g("div.Scalar", g.reduce("sum", x, dims), float(count(x, dims)))


# -- types -------------------------------------------------------------------------------------------------------------


def reduced_dims(x: TensorType, dim: Dims) -> set[int]:
    """The reduced dimensions; None and an empty list mean all."""
    if dim is None or dim == [] or dim == ():
        return set(range(x.ndim))
    asked = (dim,) if isinstance(dim, int) else dim
    found = {wrapped_dim(d, x.ndim) for d in asked}
    if len(found) != len(asked):
        raise NoRule(f"dimension twice in {dim}")
    return found


def reduced(x: TensorType, dim: Dims, keepdim: bool, dtype: torch.dtype | None = None) -> TensorType:
    gone = reduced_dims(x, dim)
    sizes = [1 if k in gone else n for k, n in enumerate(x.shape) if keepdim or k not in gone]
    return fresh(x, sizes, dtype)


def summed_dtype(x: TensorType, dtype: torch.dtype | None) -> torch.dtype:
    """Bools and integers are summed in int64."""
    return dtype or (x.dtype if kind(x.dtype) > 1 else torch.int64)


def reduction_shapes(names: str, *dtypes: Callable[[Arguments], torch.dtype | None]) -> None:
    """Registers the shape rule of reductions: each result has the sizes that remain, and a dtype by the call."""

    def rule(a: Arguments) -> Any:
        dim, keepdim = getattr(a, "dim", None), getattr(a, "keepdim", False)
        found = tuple([reduced(a.self, dim, keepdim, dtype(a)) for dtype in dtypes])
        return found if len(found) > 1 else found[0]

    call_shape(*names.split())(rule)


def own(a: Arguments) -> torch.dtype:
    """The operand's dtype."""
    dtype: torch.dtype = a.self.dtype
    return dtype


def positions(a: Arguments) -> torch.dtype:
    return torch.int64


def real(a: Arguments) -> torch.dtype:
    return REAL_OF.get(a.self.dtype, a.self.dtype)
