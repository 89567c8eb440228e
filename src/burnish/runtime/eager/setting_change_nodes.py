"""Changes of torch's global settings as nodes of a graph, and the settings before them, to be put back after an error.

    torch.use_deterministic_algorithms(True)     a node: runs at its place, as it is
    y = x.index_add(0, i, z)                     a piece of the graph between two such nodes, compiled under the setting
    torch.use_deterministic_algorithms(False)

A setting here changes how later operations compute, or which kernels they take. The settings that a piece was
compiled under are part of its cache key (``compiler.graph_cache_key.switches``), and a piece is compiled when it first
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...foundation.torch_private import (
    C,
    get_deterministic_algorithms,
    get_deterministic_algorithms_warn_only,
    get_fp32_precision_getter,
    set_deterministic_algorithms,
    set_fp32_precision_setter,
)

PAIRS = {
    "_set_cudnn_enabled": "_get_cudnn_enabled",
    "_set_cudnn_benchmark": "_get_cudnn_benchmark",
    "_set_cudnn_deterministic": "_get_cudnn_deterministic",
    "_set_cudnn_allow_tf32": "_get_cudnn_allow_tf32",
    "_set_cudnn_depthwise_kernel": "_get_cudnn_depthwise_kernel",
    "_set_cublas_allow_tf32": "_get_cublas_allow_tf32",
    "_set_mkldnn_enabled": "_get_mkldnn_enabled",
    "_set_mkldnn_deterministic": "_get_mkldnn_deterministic",
    "_set_onednn_allow_tf32": "_get_onednn_allow_tf32",
    "_set_sdp_use_flash": "_get_flash_sdp_enabled",
    "_set_sdp_use_math": "_get_math_sdp_enabled",
    "_set_sdp_use_mem_efficient": "_get_mem_efficient_sdp_enabled",
    "_set_sdp_use_cudnn": "_get_cudnn_sdp_enabled",
    "_set_sdp_use_overrideable": "_get_overrideable_sdp_enabled",
    "_set_sdp_priority_order": "_get_sdp_priority_order",
    "_set_deterministic_fill_uninitialized_memory": "_get_deterministic_fill_uninitialized_memory",
    "_set_warnAlways": "_get_warnAlways",
}
"""Setters of ``torch._C`` with one argument, and what reads the setting."""

PRECISIONS = [
    ("generic", "all"),
    *((backend, kind) for backend in ("cuda", "mkldnn") for kind in ("all", "matmul", "conv", "rnn")),
]
"""The places of float32's precision."""

FUNCTIONS = (
    torch.set_default_dtype,
    torch.use_deterministic_algorithms,
    torch.set_float32_matmul_precision,
    torch.set_warn_always,
    torch.manual_seed,
)
"""Functions of torch that change a setting, or the state of the default generator."""

SETTERS = frozenset((*PAIRS, "_set_fp32_precision_setter"))
"""Names of functions of ``torch._C`` that change a setting."""


class ChangeSetting:
    """A node's target: the function that changes a setting. It runs as it is, between compiled parts."""

    stands_alone = True

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.function(*args, **kwargs)


def is_change(target: Any) -> bool:
    """Whether a node changes a setting. Graphs for the backends of others call torch's own function."""
    return type(target) is ChangeSetting or getattr(target, "__name__", "") in SETTERS


def values() -> dict[str, Any]:
    """The settings now, by the name of what reads them."""
    found = {name: getattr(C, name)() for name in PAIRS.values() if hasattr(C, name)}
    found["_get_deterministic_algorithms"] = get_deterministic_algorithms()
    found["_get_deterministic_algorithms_warn_only"] = get_deterministic_algorithms_warn_only()
    found["get_default_dtype"] = torch.get_default_dtype()
    for place in PRECISIONS:
        found[" ".join(place)] = get_fp32_precision_getter(*place)
    return found


def begin_with(gm: torch.fx.GraphModule, before: dict[str, Any]) -> None:
    """Have a graph for another compiler begin with the settings it changes for good as they were ``before``: it may be
    traced twice, the second time under what it ends with."""
    now = values()
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and type(node.target) is not ChangeSetting]
    setters = {node.target.__name__: node.target for node in nodes if is_change(node.target)}
    changed = [name for name in setters if now[PAIRS[name]] != before[PAIRS[name]]]
    with gm.graph.inserting_before(next(node for node in gm.graph.nodes if node.op != "placeholder")):
        for name in changed:
            gm.graph.call_function(setters[name], (before[PAIRS[name]],))
    if changed:
        gm.recompile()


def put_back(before: dict[str, Any]) -> None:
    """Set what differs from ``before``."""
    now = values()
    for setter, name in PAIRS.items():
        if name in now and now[name] != before[name]:
            getattr(C, setter)(before[name])
    modes = ("_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only")
    if any(now[name] != before[name] for name in modes):
        set_deterministic_algorithms(before[modes[0]], warn_only=before[modes[1]])
    if now["get_default_dtype"] != before["get_default_dtype"]:
        torch.set_default_dtype(before["get_default_dtype"])
    for place in PRECISIONS:
        if now[" ".join(place)] != before[" ".join(place)]:
            set_fp32_precision_setter(*place, before[" ".join(place)])


def keeping_on_error(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same graph; if it raises, the settings are as before, and the program can run again from its start."""

    def call(*inputs: Any) -> Any:
        before = values()
        try:
            return compiled(*inputs)
        except BaseException:
            put_back(before)
            raise

    return call
