"""Shape rules of recurrent layers (LSTM, GRU, RNN) and their gradients.

    mkldnn_rnn_layer(f32[3, 4, 6], …, hx f32[4, 5], cx f32[4, 5], …)     f32[3, 4, 5], f32[4, 5], f32[4, 5], None
    recurrent('gru', f32[3, 4, 6], [f32[1, 4, 5]], …)                    f32[3, 4, 5], f32[1, 4, 5], u8[0]

On a CPU a float32 LSTM is one `mkldnn_rnn_layer` for each layer and direction. All other recurrent layers are one
`recurrent` (`lower.trace.call_rewrites.recurrent_layers`).
"""

from __future__ import annotations

from typing import Any

import torch

from ...foundation.torch_private import AutoDispatchBelowAutograd
from ...tensors.tensor_types import TensorType, has_stride
from ..operator_record import Arguments, NoRule, call_shape, fresh, record, shape


@call_shape("aten.mkldnn_rnn_layer.default")
def mkldnn_rnn_layer(call: Arguments) -> tuple[TensorType | None, ...]:
    """The input is [positions, batch, features] whatever `batch_first` is. For gradients, oneDNN saves a workspace."""
    if call.train or torch.is_grad_enabled():
        raise NoRule("only oneDNN knows the size of its workspace")
    x, states = call.input, (call.hx_, call.cx_)
    return fresh(x, (*x.shape[:2], call.hidden_size)), *(fresh(x, state.shape) for state in states), None


@call_shape("aten.mkldnn_rnn_layer_backward.default")
def mkldnn_rnn_layer_backward(call: Arguments) -> tuple[TensorType, ...]:
    """Without biases the caller passes the weights twice, and bias gradients are still returned."""
    bias = fresh(call.weight1, call.weight1.shape[:1])
    inputs = (call.input, call.weight1, call.weight2, call.hx_, call.cx_tmp)
    dx, dw1, dw2, dhx, dcx = (fresh(like, like.shape) for like in inputs)
    return dx, dw1, dw2, bias, bias, dhx, dcx


def with_workspace(*args: Any) -> Any:
    """The kernel saves a workspace only in grad mode, which is off while compiled code runs. Autograd must not record
    the call: backward is a separate call."""
    with torch.enable_grad(), AutoDispatchBelowAutograd():
        return torch.ops.aten.mkldnn_rnn_layer.default(*args)


record("aten.mkldnn_rnn_layer.default").notes["run"] = lambda node: (
    with_workspace if node.results[3] is not None else None
)


RECURRENT = record("recurrent")
RECURRENT_BACKWARD = record("recurrent_backward")
RECURRENT_BACKWARD.notes["reads_forward_memory"] = True  # through the ticket, in which autograd holds the tensors


@shape("recurrent")
def recurrent_types(
    kind: str,
    x: TensorType,
    state: list[TensorType],
    weights: list[TensorType],
    has_biases: bool,
    layers: int,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    wanted: tuple[bool, ...] | None,
) -> tuple[TensorType, ...]:
    """With gradients the last result is a ticket for what autograd saved."""
    positions, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    width = state[0].shape[2] * (1 + bool(bidirectional))
    out = fresh(x, (positions, batch, width))
    if batch_first:
        out = TensorType((batch, positions, width), (width, batch * width, 1), x.dtype, x.device)
    made = (out, *(fresh(x, given.shape) for given in state))
    return made if wanted is None else (*made, TensorType.contiguous((0,), torch.uint8))


@shape("recurrent_backward")
def recurrent_gradients(
    ticket: TensorType, gradients: list[TensorType | None], inputs: list[TensorType], wanted: tuple[bool, ...]
) -> tuple[TensorType, ...]:
    return tuple(gradient_type(x) for x, is_wanted in zip(inputs, wanted, strict=True) if is_wanted)


def gradient_type(x: TensorType) -> TensorType:
    """The type of the gradient of an input, a state or a weight. If a weight has gaps or is transposed, eager computes
    the transposed product for its gradient."""
    is_transposed = x.device_facts.transposes_gradients
    if is_transposed and x.ndim == 2 and x.stride != (x.shape[1], 1):
        return TensorType(x.shape, (1, x.shape[0]), x.dtype, x.device)
    columns = x.ndim == 3 and (x.shape[1], 1, x.shape[0] * x.shape[1])
    if is_transposed and columns and x.stride[2] != 1 and has_stride(x, columns):
        return TensorType(x.shape, columns, x.dtype, x.device)
    return fresh(x, x.shape)
