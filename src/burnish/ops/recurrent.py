"""Recurrent layers, as eager runs them on a CPU: the types of their results.

    mkldnn_rnn_layer(f32[3, 4, 6], …, hx f32[4, 5], cx f32[4, 5], …)     f32[3, 4, 5], f32[4, 5], f32[4, 5], None

An LSTM is one such call for each layer and direction; a GRU arrives as matrix products and element-wise operators.
"""

from __future__ import annotations

import torch

from ..tensors.types import TensorType
from .record import NoRule, fresh, shape


@shape("aten.mkldnn_rnn_layer.default")
def mkldnn_rnn_layer(
    x: TensorType, weight0: TensorType, weight1: TensorType, weight2: TensorType, weight3: TensorType,
    hx: TensorType, cx: TensorType, reverse: bool, batch_sizes: list[int], mode: int, hidden_size: int,
    num_layers: int, has_biases: bool, bidirectional: bool, batch_first: bool, train: bool,
) -> tuple[TensorType | None, ...]:
    """The input has positions first whatever `batch_first` says. For gradients oneDNN keeps a workspace."""
    if train or torch.is_grad_enabled():
        raise NoRule("only oneDNN knows the size of its workspace")
    return fresh(x, (*x.shape[:2], hidden_size)), fresh(x, hx.shape), fresh(x, cx.shape), None


@shape("aten.mkldnn_rnn_layer_backward.default")
def mkldnn_rnn_layer_backward(
    x: TensorType, weight1: TensorType, weight2: TensorType, weight3: TensorType, weight4: TensorType,
    hx: TensorType, cx: TensorType, *_: object, **__: object,
) -> tuple[TensorType, ...]:
    """Without biases the weights are given twice; there are gradients for biases all the same."""
    bias = fresh(weight1, weight1.shape[:1])
    dx, dw1, dw2, dhx, dcx = (fresh(like, like.shape) for like in (x, weight1, weight2, hx, cx))
    return dx, dw1, dw2, bias, bias, dhx, dcx
