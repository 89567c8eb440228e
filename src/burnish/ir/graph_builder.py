"""Graph builder: appends nodes by operator name. Decompositions are written with it.

    def silu_backward(g, grad, x):
        s = g("sigmoid", x)
        return g("mul.Tensor", grad, g("mul.Tensor", s, ...))

Result types come from the shape rules of the operator records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..ops.burnish_primitives import CONVERT, PUT, REDUCE, RESTRIDE, RUN_ALONG, VIEW
from ..ops.operator_record import Op, lookup
from ..tensors.tensor_types import TensorType
from ..tensors.views.simplify_views import simplified
from ..tensors.views.view_maps import Expand, Map, Maps, Permute, Reshape
from .graph import Graph, Value
from .infer_types import result_types


class Builder:
    """Appends nodes to `graph`. `line` is the user's source line recorded on new nodes."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.line: str | None = None
        self.row_sums: dict[Value, Value] = {}
        """Of values whose sums along rows a decomposition knows: so they need not be computed."""

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Apply an ATen operator: "mul.Tensor", or "exp" for "exp.default"."""
        packet, _, overload = name.partition(".")
        return self.apply(lookup(getattr(getattr(torch.ops.aten, packet), overload or "default")), args, kwargs)

    def apply(self, op: Op, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        return self.graph.add(op, args, kwargs, result_types(op, args, kwargs), self.line)

    def apply_typed(self, op: Op, args: tuple, kwargs: dict[str, Any], types: tuple) -> tuple[Value | None, ...]:
        """Apply an operator whose result types are known. Always returns a tuple."""
        return self.graph.add(op, args, kwargs, types, self.line)

    def view(self, x: Value, *maps: Map) -> Value:
        steps: Maps = simplified(maps, x.shape)
        return self.apply(VIEW, (x, steps)) if steps else x

    def reshape(self, x: Value, shape: Iterable[int]) -> Value:
        return self.view(x, Reshape(tuple(shape)))

    def permute(self, x: Value, dims: Iterable[int]) -> Value:
        return self.view(x, Permute(tuple(dims)))

    def expand(self, x: Value, shape: Iterable[int]) -> Value:
        return self.view(x, Expand(tuple(shape)))

    def put(self, x: Value, value: Value, maps: Maps) -> Value:
        return self.apply(PUT, (x, value, maps))

    def convert(self, x: Value, dtype: torch.dtype) -> Value:
        return x if x.dtype is dtype else self.apply(CONVERT, (x, dtype))

    def restride(self, x: Value, stride: tuple[int, ...]) -> Value:
        return x if x.type.stride == stride else self.apply(RESTRIDE, (x, stride))

    def copy(self, x: Value) -> Value:
        """A copy in its own memory. Zeros that have none, which no kernel can read, are made once more."""
        if x.node is not None and x.node.op.name == "aten._efficientzerotensor.default":
            return self.apply_typed(x.node.op, x.node.args, x.node.kwargs, (x.type,))[0]  # type: ignore[return-value]
        return self.apply(RESTRIDE, (x, x.type.stride))

    def reduce(self, op: str, x: Value, dims: Iterable[int], keep: bool = True) -> Value:
        """Reduce over `dims` (empty: all of them). With `keep` they stay as size-1 dimensions."""
        over = tuple(sorted(d % max(x.ndim, 1) for d in dims)) or tuple(range(x.ndim))
        if not x.ndim:
            over = ()
        found = self.apply(REDUCE[op], (x, over))
        return found if keep else self.reshape(found, (n for k, n in enumerate(x.shape) if k not in over))

    def run_along(self, op: str, x: Value, dim: int) -> Value:
        """A scan along `dim`: with "sum", the cumulative sum."""
        return self.apply(RUN_ALONG[f"running_{op}"], (x, dim % max(x.ndim, 1)))

    def full(self, shape: Iterable[int], value: float, like: TensorType, dtype: torch.dtype | None = None) -> Value:
        return self("full", list(shape), value, dtype=dtype or like.dtype, device=like.device)
