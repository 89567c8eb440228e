"""Recurrent layers in the trace: one call forward and one backward, instead of a loop over steps.

    torch._VF.gru(x, h, weights, …)    =>    recurrent, recurrent_1, ticket = recurrent 'gru', x, [h], [w, …], …
                                             …
                                             … = recurrent_backward ticket, [gradient, None], [x, h, w, …], …

On a CPU eager has a kernel only for LSTMs in float32: that is an ATen operator and is traced as such. The others are a
loop over positions in C++, which makes a long graph: a hundred positions take many seconds to compile, and run slower
than eager. On a GPU cuDNN has all of them, but requires weights in one buffer, which the trace cannot express.
`runtime/eager/recurrent_layers.py` runs the calls.
"""

from __future__ import annotations

from typing import Any

import torch

from ....foundation.torch_private import VF
from ....ops.library.recurrent_shape_rules import RECURRENT, RECURRENT_BACKWARD, gradient_type, recurrent_types
from ....tensors.device_facts import DEVICES, facts_of
from ..aten_tracer import AtenTracer
from .second_derivatives import differentiable_once
from .unseen_writes import refuse_unseen_writes

KINDS = {
    VF.gru: "gru",
    VF.rnn_tanh: "rnn_tanh",
    VF.rnn_relu: "rnn_relu",  # type: ignore
    VF.lstm: "lstm",
}  # type: ignore[attr-defined]


def is_recurrent(target: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call is traced this way. `args`: x, state, weights, has_biases, layers, dropout, train, bidirectional,
    batch_first."""
    try:
        kind = KINDS.get(target)
    except TypeError:
        return False
    if kind is None or kwargs or len(args) != 9 or not isinstance(args[2], (tuple, list)):
        return False
    x, weights, has_biases, layers, dropout, train, bidirectional = args[0], *args[2:8]
    if (
        x.ndim != 3
        or x.device.type not in DEVICES
        or not x.is_floating_point()
        or torch.is_autocast_enabled(x.device.type)
        or 0 in x.shape
    ):
        return False
    if not facts_of(x.device).splits_recurrent_layers:
        return not (dropout and train and layers > 1)
    is_projected = len(weights) != layers * (1 + bool(bidirectional)) * (4 if has_biases else 2)
    return kind != "lstm" or x.dtype is not torch.float32 or is_projected


def trace_recurrent(tracer: AtenTracer, target: Any, args: tuple) -> tuple:
    x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first = args
    state = [state] if isinstance(state, torch.Tensor) else list(state)
    if dropout and train and layers > 1:
        return layer_by_layer(tracer, target, (x, state, list(weights)), args[3:])
    options = KINDS[target], len(state), has_biases, layers, train, bidirectional, batch_first
    tensors = [x, *state, *weights]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Recurrent.apply(tracer, options, *tensors)[:-1]
    return add_call(tracer, options, [t.value for t in tensors], None)


def layer_by_layer(tracer: AtenTracer, target: Any, tensors: tuple, options: tuple) -> tuple:
    """Dropout between layers becomes part of the graph."""
    (x, state, weights), (has_biases, layers, dropout, train, bidirectional, batch_first) = tensors, options
    x = x.transpose(0, 1) if batch_first else x
    count, directions = len(weights) // layers, 1 + bool(bidirectional)
    found: list[Any] = []
    for k in range(layers):
        x = torch.dropout(x, dropout, True) if k else x
        own = [s.narrow(0, k * directions, directions) for s in state]
        x, *last = trace_recurrent(
            tracer,
            target,
            (x, own, weights[k * count : (k + 1) * count], has_biases, 1, 0.0, train, bidirectional, False),
        )
        found.append(last)
    states = [torch.cat([last[k] for last in found]) for k in range(len(state))]
    return x.transpose(0, 1) if batch_first else x, *states


def add_call(tracer: AtenTracer, options: tuple, values: list, wanted: tuple | None) -> tuple:
    kind, count, *rest = options
    args = kind, values[0], values[1 : 1 + count], values[1 + count :], *rest, wanted
    types = recurrent_types(kind, values[0].type, [v.type for v in args[2]], [v.type for v in args[3]], *rest, wanted)
    return tuple(map(tracer.tensor, tracer.graph.add(RECURRENT, args, {}, types, tracer.line)))


class Recurrent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tracer: AtenTracer, options: tuple, *tensors: Any) -> tuple:
        ctx.tracer = tracer
        ctx.set_materialize_grads(False)
        made = add_call(tracer, options, [t.value for t in tensors], tuple(ctx.needs_input_grad[2:]))
        ctx.save_for_backward(made[-1], *tensors)
        ctx.mark_non_differentiable(made[-1])
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple:
        tracer, wanted = ctx.tracer, tuple(ctx.needs_input_grad[2:])
        ticket, *tensors = ctx.saved_tensors
        values = [t.value for t in tensors]
        refuse_unseen_writes(tracer.graph, ticket.value.node, values)
        types = tuple(gradient_type(v.type) for v, is_wanted in zip(values, wanted, strict=True) if is_wanted)
        args = ticket.value, [g if g is None else g.value for g in gradients[:-1]], values, wanted

        def run() -> list[Any]:
            return [*map(tracer.tensor, tracer.graph.add(RECURRENT_BACKWARD, args, {}, types, tracer.line))]

        found = iter(differentiable_once("a recurrent layer", run, [*gradients, *tensors]))
        return None, None, *(next(found) if is_wanted else None for is_wanted in wanted)
