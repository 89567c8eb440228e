"""Runs one node of the captured graph in a trace: rewrites of single calls, numbers, custom autograd functions."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ...captured_graph.warnings_already_given import call_quietly
from ...concurrency.outside_errors import reraise_from_outside
from ...ir.graph_builder import Builder
from ...ir.untraceable_graph import Untraceable
from .aten_tracer import AtenTracer
from .build_joint_graph import custom_backwards
from .call_rewrites.ctc_loss import arguments_of, trace_ctc_loss
from .call_rewrites.masked_writes import is_masked_write, write_masked
from .call_rewrites.max_pool1d_strides import is_pooled_line, pool_line
from .call_rewrites.one_hot_class_check import check_classes, is_one_hot
from .call_rewrites.recurrent_layers import is_recurrent, trace_recurrent
from .call_rewrites.scalar_tensor_index import READS, has_scalar_index, read, write
from .symbolic_scalar import with_symbolic_scalars
from .trace_tensor import TraceTensor
from .traceability import is_custom, why_not_called, why_not_data


def run_node(tracer: AtenTracer, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
    """Run one node of the captured graph."""
    tracer.line = node.meta.get("stack_trace")
    args = torch.fx.node.map_arg(node.args, env.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
    if is_item_of_results(node.target, args):
        return node.target(*args)
    if has_scalar_index(node.target, args):
        found = index_by_scalars(tracer, node.target, args)
        if found is not NotImplemented:
            return found
    if is_one_hot(node.target, args, kwargs):
        check_classes(Builder(tracer.graph), args, kwargs)
    if is_masked_write(node.target, args):
        return write_masked(*args)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op != "call_function":
        raise Untraceable(f"a {node.op} node")
    if tracer.numbers.any_in((args, kwargs)):
        found = tracer.numbers.call(node.target, args, kwargs)
        if found is not None:
            return found
    why = why_not_called(node.target) or why_not_data(node)
    if why is not None:
        raise Untraceable(why)
    if is_custom(node.target):
        return call_custom(tracer, node.target, args, kwargs)
    if is_recurrent(node.target, args, kwargs):
        return trace_recurrent(tracer, node.target, args)
    ctc_loss = arguments_of(node.target, args, kwargs)
    if ctc_loss is not None:
        return trace_ctc_loss(tracer, *ctc_loss)
    if is_pooled_line(node.target):
        return pool_line(node.target, args, kwargs)
    if tracer.has_custom and node.target is torch.autograd.grad:
        with custom_backwards(tracer):
            return node.target(*args, **kwargs)
    made = call_quietly(node.target, args, kwargs)
    if getattr(node.target, "torch_attribute", None) == "data" and type(made) is TraceTensor:
        made.value.has_own_version = True
    return made


def is_item_of_results(target: Any, args: tuple) -> bool:
    """An item of a list, such as one of all the gradients. To look for numbers in the list each time takes longer."""
    return target is operator.getitem and type(args[0]) in (list, tuple) and type(args[1]) is int


def index_by_scalars(tracer: AtenTracer, target: Any, args: tuple) -> Any:
    if target not in READS:
        is_live = tracer.numbers.any_in(args)
        return None if not is_live and write(args) else NotImplemented
    made, is_copy = read(args)
    if is_copy:
        tracer.picked.append((made.value.node, args[0].value))  # type: ignore[union-attr]
    return NotImplemented if made is None else made


def call_custom(tracer: AtenTracer, target: Any, args: tuple, kwargs: dict) -> Any:
    """A custom autograd function; capture has checked that it is only tensor code."""
    tracer.has_custom = True
    try:
        return target(*with_symbolic_scalars(tracer.numbers, args), **with_symbolic_scalars(tracer.numbers, kwargs))
    except Untraceable:
        raise
    except Exception as error:
        reraise_from_outside(error)
        raise Untraceable(f"{target.__name__} cannot be traced: {type(error).__name__}: {error}") from error
