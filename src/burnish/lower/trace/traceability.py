"""Which tensors and calls of a captured graph can be traced without data, and why not."""

from __future__ import annotations

from typing import Any

import torch

from ...captured_graph.checkpoint_hooks import MARK
from ...foundation.torch_private import OpOverload, OpOverloadPacket
from ...tensors.dtypes import NAMES


def why_not_input(tensor: torch.Tensor) -> str | None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a tensor of the class {type(tensor).__qualname__}"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return f"a tensor of the layout {tensor.layout}"
    if tensor.dtype not in NAMES:
        return f"a tensor of {tensor.dtype}"
    if tensor.is_conj() or tensor.is_neg():
        return "a lazily conjugated tensor"
    if tensor.device.type == "meta" or tensor._is_zerotensor():
        return "a tensor without data"
    return None


VIEWS = ("T", "mT", "H", "mH", "real", "imag")
"""Attributes of tensors that are operators. Capture records them under these names."""


def is_custom(target: Any) -> bool:
    """Whether a node's target is a custom autograd function (`capture.pytorch.custom_functions`)."""
    return hasattr(target, "why_not_traceable")


def why_not_called(target: Any) -> str | None:
    """Only torch's own functions, and custom ones that only compute, run on tensors without data."""
    if getattr(target, "of_distributed_tensors", False):
        return None
    if is_custom(target):
        return target.why_not_traceable and f"{target.__name__} runs as it is: {target.why_not_traceable}"
    if getattr(target, "torch_attribute", None) in (*VIEWS, "data"):
        return None
    module = getattr(target, "__module__", None) or type(target).__module__ or ""
    if isinstance(target, OpOverload | OpOverloadPacket):
        return None
    if module in ("_operator", "builtins", "math") or module.startswith("torch"):
        owner = getattr(target, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return f"the custom function {owner.__qualname__}"
        return None
    return f"a call of {getattr(target, '__qualname__', target)}"


def may_run_alone(node: torch.fx.Node) -> bool:
    """Whether a call can run as it is, between compiled parts of its graph: it is one of torch's, makes tensors and
    writes to none, and no checkpoint computes it again."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "_")
    return (
        node.op in ("call_method", "call_function")
        and node.target is not torch.autograd.grad
        and (isinstance(node.target, str) or not is_custom(node.target) and why_not_called(node.target) is None)
        and not (name.endswith("_") or name in ("setitem", "getitem") or "out" in node.kwargs or MARK in node.meta)
        and not any(word in name for word in REFUSED_ALONE)
        and node.kwargs.keys().isdisjoint(WRITING)
        and WRITING.isdisjoint(parameters_of(node.target))
    )


REFUSED_ALONE = "sparse mkldnn quantize nested batch_norm instance_norm".split()
"""Parts of the names of calls that write to running statistics, or whose results no compiled part takes."""
WRITING = frozenset("inplace max_norm running_mean running_var".split())
"""Parameters of functions that may write to an argument."""


def parameters_of(target: Any) -> tuple[str, ...]:
    code = getattr(target, "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


COMPUTES = frozenset(
    """
    add sub rsub mul div truediv pow neg abs sqrt exp log sin cos tanh sigmoid relu clamp clamp_min clamp_max sum mean
    norm matmul mm linear clone eq ne lt le gt ge zeros_like ones_like empty_like
""".split()
)
"""Calls that return a new tensor."""


def why_not_data(node: torch.fx.Node) -> str | None:
    """``x.data`` has its own version counter. That makes no difference inside the graph, whose gradients use the
    values at that time, as in eager. It does if ``x.data`` leaves the graph."""
    if getattr(node.target, "torch_attribute", None) == "data" and may_leave(node):
        return "x.data leaves the graph"
    return None


def may_leave(node: torch.fx.Node) -> bool:
    """Whether a tensor, or another view of its memory, may be an output."""
    for user in node.users:
        name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
        is_written_elsewhere = name.endswith("_") and user.args[:1] != (node,)
        if user.op == "output" or not (name in COMPUTES or is_written_elsewhere) and may_leave(user):
            return True
    return False
