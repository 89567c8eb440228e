"""Canonicalization of products: matmuls and convolutions take one form, from which library calls are chosen.

t  = view w  permute[1, 0]
y  = aten.addmm.default b, x, t       =>    y = linear x, w, b, None, None
z  = aten.convolution.default x, ...  =>    z = conv x, ...
"""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph, Node, Value
from ...ir.rewriter import Rewriter
from ...ops.burnish_primitives import CONV, LINEAR
from ...tensors.type_promotion import kind
from ...tensors.views.view_maps import Permute

CALLS = {"aten.addmm.default", "aten.mm.default", "aten.convolution.default"}


def canonicalize_products(graph: Graph) -> Graph:
    return ProductCanonicalizer(graph).run()


class ProductCanonicalizer(Rewriter):
    optional = "canonicalize_products"

    def rewrite(self, node: Node, args: tuple, kwargs: dict[str, Any]) -> Any:
        if node.op.name not in CALLS or not all(is_plain(value) for value in (*node.operands, *node.results)):
            return None
        match node.op.name:
            case "aten.mm.default":
                return self.linear(args[0], args[1], None)
            case "aten.addmm.default":
                bias = args[0]
                plain = kwargs.get("beta", 1) == 1 and kwargs.get("alpha", 1) == 1
                if plain and bias.shape == (args[2].shape[1],):
                    return self.linear(args[1], args[2], bias)
            case "aten.convolution.default" if args[0].ndim > 2 and len(args[3]) == args[0].ndim - 2:
                stride, padding, dilation, output_padding = (
                    number_per_dimension(args[k], args[0]) for k in (3, 4, 5, 7)
                )
                return self.build.apply(
                    CONV, (*args[:3], None, None, stride, padding, dilation, args[6], output_padding, args[8])
                )
        return None

    def linear(self, x: Value, w: Value, bias: Value | None) -> Value:
        return self.build.apply(LINEAR, (x, self.build.view(w, Permute((1, 0))), bias, None, None))


def number_per_dimension(numbers: Any, x: Value) -> tuple[int, ...]:
    """One number for each spatial dimension; torch also accepts one for all."""
    found = tuple(numbers)
    return found * (x.ndim - 2) if len(found) == 1 else found


def is_plain(value: Value | None) -> bool:
    return value is not None and kind(value.dtype) == 2 and 0 not in value.shape
