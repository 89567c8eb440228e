"""Traces a captured graph to ATen operators: torch calls become a functional graph of ATen calls.

    y = torch.nn.functional.linear(x, w)     =>     t    = aten.t.default w
                                                    mm   = aten.mm.default x, t

The captured graph runs again, on `TraceTensor`s: tensors with a type and no data. PyTorch's C++ code handles views,
type promotion and composite operators; `aten_tracer` records each ATen call that reaches the dispatcher. The operator's
shape rule gives the type of its result; without a rule the eager kernel runs on tensors of zeros.

A raw entry of the dispatch stack intercepts the calls: torch's TorchDispatchMode would import Dynamo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...captured_graph.compile_request import facts_of_input, request_of
from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import (
    InferenceMode,
    len_torch_dispatch_stack,
    pop_torch_dispatch_stack,
    push_on_torch_dispatch_stack,
)
from ...ir.untraceable_graph import NumberLost, Untraceable
from ...tensors.torch_state import TorchState
from .aten_tracer import AtenTracer, Traced
from .build_joint_graph import add_gradients
from .call_rewrites.scalar_tensor_index import why_not_copied
from .inference_mode_and_dispatch_keys import dispatcher_kept, plain_tensors, tracing
from .run_captured_node import run_node
from .trace_activation_checkpointing import Regions
from .traceability import is_custom, may_run_alone


def trace(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool = False, live_scalar_types: tuple[type, ...] = ()
) -> Traced:
    """The ATen calls of a captured graph, and of its gradients if requested. Python numbers among the inputs become
    constants, except those of the types in `live_scalar_types`: they may differ in the next call."""
    traced = trace_once(gm, example_inputs, gradients, live_scalar_types, 0)
    if traced.has_numbers:
        second = trace_once(gm, example_inputs, gradients, live_scalar_types, 1)
        check_numbers(traced, second)
        second.graph.break_reference_cycles()
    return traced


def tracer_for(gm: GraphModule) -> type[AtenTracer]:
    if not request_of(gm).is_local:
        return AtenTracer
    from .call_rewrites.distributed_dispatch import DistributedTracer

    return DistributedTracer


def trace_once(
    gm: GraphModule, example_inputs: Sequence[Any], gradients: bool, live_scalar_types: tuple[type, ...], salt: int
) -> Traced:
    tracer = tracer_for(gm)(gradients, live_scalar_types, salt)
    tracer.overwritten = request_of(gm).overwritten_inputs
    env: dict[torch.fx.Node, Any] = {}
    inputs = iter(example_inputs)
    outputs: Any = ()
    results = 0
    with tracing, plain_tensors(), dispatcher_kept():
        before = TorchState.now()
        regions = Regions(tracer, gm, env)
        modes = len_torch_dispatch_stack()
        try:
            push_on_torch_dispatch_stack(tracer)  # inside `try`: an interrupt may follow at once
            for node in gm.graph.nodes:
                regions.before(node)
                if node.op == "placeholder":
                    env[node] = tracer.input(next(inputs), node.name, facts_of_input(node).is_module_state)
                elif node.op == "output":
                    outputs = torch.fx.node.map_arg(node.args[0], env.__getitem__)
                else:
                    tracer.numbers.are_hidden = is_custom(node.target)
                    try:
                        env[node] = run_node(tracer, node, env)
                    except Untraceable as error:
                        same = [each for each in gm.graph.nodes if each.target == node.target]
                        error.call = list(gm.graph.nodes).index(node) if all(map(may_run_alone, same)) else None
                        raise
                    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
                        reraise_from_outside(error)
                        # An error of the user, which eager reports, or torch code that reads data.
                        raise Untraceable(f"{node.target} cannot be traced: {error}") from error
            regions.leave()
            if (now := TorchState.now()).inference != before.inference or now.default_dtype != before.default_dtype:
                raise Untraceable("it ends in another inference mode, or with another default dtype, than it begins")
            before.restore()  # the caller of the compiled graph sets the modes that it changes
            tracer.numbers.are_hidden = any(is_custom(node.target) for node in gm.graph.nodes)
            results = len(outputs)
            if gradients:
                outputs = add_gradients(tracer, list(outputs), env.values())
        finally:
            if len_torch_dispatch_stack() > modes:
                pop_torch_dispatch_stack(None)
            for mode in reversed(env.values()):
                if isinstance(mode, InferenceMode):
                    # Restores the dispatcher's state now, not when the object is collected.
                    mode.__exit__(None, None, None)
            before.restore()
            regions.leave()
    tracer.traced.graph.outputs = [tracer.output(out, k < results) for k, out in enumerate(outputs)]
    why = why_not_copied(tracer.graph, tracer.picked) if tracer.picked else None
    if why is not None:
        raise Untraceable(why)
    tracer.finish()
    return tracer.traced


def check_numbers(first: Traced, second: Traced) -> None:
    same = len(first.constants) == len(second.constants) and all(
        a.dtype is b.dtype and a.shape == b.shape and torch.equal(a, b)
        for a, b in zip(first.constants, second.constants, strict=True)
    )
    if not same or str(first.graph) != str(second.graph):
        raise NumberLost("a number that may be another in the next call becomes a constant")
