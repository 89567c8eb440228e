"""Makes results inference tensors where eager's are, for graphs that enter or leave inference mode.

    with torch.inference_mode():                 with torch._C._InferenceMode(True):
        y = x * 2                          =>        return compiled(x)
    return y

Compiled code has no modes inside. Its results are made in the mode in which it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from ...captured_graph.compile_request import request_of
from ...foundation.torch_private import InferenceMode
from ...ir.untraceable_graph import Untraceable


def mode_of_results(gm: GraphModule) -> bool | None:
    """The inference mode in which the results are made; None if it is the current one."""
    made = {is_inference for is_inference in request_of(gm).outputs_are_inference if is_inference is not None}
    if len(made) > 1:
        raise Untraceable("some of its results are inference tensors, and some are not")
    return None if made <= {torch.is_inference_mode_enabled()} else made.pop()


def in_inference_mode(compiled: Callable[..., Any], is_inference: bool) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        with InferenceMode(is_inference):
            return compiled(*inputs)

    return call
