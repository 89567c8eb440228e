"""Graph interpreter: runs a graph node by node with eager kernels. It defines a graph's meaning, which passes preserve.

    outputs = interpret(graph, [x, w], eager_primitives.FUNCTIONS)

It is slow and simple on purpose. It runs a fresh trace (in-place operators, aliasing views) as well as the graph after
any pass. It performs the graph's writes to inputs. `functions` maps names of our own operators to torch functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import InternalError
from ..ops.burnish_primitives import CONV, LINEAR, PREPARE, RUN
from .graph import Alias, Graph, Node, Value, map_values

Functions = Mapping[str, Callable[..., Any]]


@torch.no_grad()
def interpret(graph: Graph, inputs: Sequence[Any], functions: Functions) -> list[Any]:
    env: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        args = map_values(node.args, env.__getitem__)
        kwargs = {name: map_values(arg, env.__getitem__) for name, arg in node.kwargs.items()}
        found = function_of(node, functions)(*args, **kwargs)
        if not node.results:
            continue
        results = (found,) if isinstance(found, torch.Tensor) else tuple(found)
        for value, result in zip(node.results, results, strict=True):
            if value is not None:
                check_type(node, value, result)
                env[value] = result
    outputs = [output(graph, out, env, functions) for out in graph.outputs]
    # Inputs may be swapped, so all values are read before the first write.
    written = [(env[graph.inputs[write.input]], env[write.value].clone()) for write in graph.writes]
    for input, value in written:
        input.copy_(value)
    return outputs


def function_of(node: Node, functions: Functions) -> Callable[..., Any]:
    if node.op is RUN:
        return lambda candidate, operands: candidate.run(*operands)
    if node.op is PREPARE:
        return lambda candidate, *weights: candidate.prepare(*weights)
    if node.op is LINEAR:
        return linear
    if node.op is CONV:
        return conv
    return functions[node.op.name] if node.op.target is None else node.kernel


def linear(x: Any, weight: Any, bias: Any, residual: Any, activation: Any) -> Any:
    """The operators that it was fused from: `mm` or `addmm` with a transposed weight."""
    aten = torch.ops.aten
    product = aten.mm(x, weight.t()) if bias is None else aten.addmm(bias, x, weight.t())
    return finish_product(product, residual, activation)


def conv(x: Any, weight: Any, bias: Any, residual: Any, activation: Any, *settings: Any) -> Any:
    return finish_product(torch.ops.aten.convolution(x, weight, bias, *settings), residual, activation)


def finish_product(product: Any, residual: Any, activation: Any) -> Any:
    made = product if residual is None else product + residual
    return made if activation is None else activation(made)


def check_type(node: Node, value: Value, result: torch.Tensor) -> None:
    """Compare shape and dtype. Strides may differ: a consumer that needs others makes a copy."""
    if (tuple(result.shape), result.dtype) != (value.shape, value.dtype):
        raise InternalError("interpret", f"{value} came out as {result.dtype} {list(result.shape)}: {node}")


def output(graph: Graph, out: Any, env: Mapping[Value, Any], functions: Functions) -> Any:
    if isinstance(out, Alias):
        input = env[graph.inputs[out.input]]
        return input if out.type is None else functions["view"](input, out.maps)
    return map_values(out, env.__getitem__)
