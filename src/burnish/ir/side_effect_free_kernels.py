"""Which kernels may run on zeros to find out what they return: only those without other effects.

The generators of random numbers are the program's, in all its threads, so what draws gets a generator of its own.
Kernels of the user's may count or print. The program alone runs them: others ask what is registered for tensors
without data.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from ..foundation.torch_private import OpOverload, dispatch_dump

OF_TORCH = frozenset(("aten", "prims", "prim", "quantized", "mkldnn", "mkldnn_prepacked", "onednn"))

KERNEL_OF_PYTHON = re.compile(
    r"^(CPU|CUDA|Composite\w+)(?:\[alias\])?: registered at (?!.*/torch/_native/)\S.*\.py:\d+ ", re.MULTILINE
)
"""A line of the dispatcher's own table, of a kernel that runs with data."""

CRASHES_WITHOUT_ELEMENTS = frozenset(
    (
        "aten::_embedding_bag_backward",
        "aten::_embedding_bag_dense_backward",
        "aten::_segment_reduce_backward",
        "aten::adaptive_max_pool2d_backward",
        "aten::native_batch_norm",
        "aten::segment_reduce",
    )
)
"""Kernels that write outside of their operands if one is empty."""

WARN = frozenset("index_reduce std std_mean triangular_solve var var_mean".split())
"""Kernels that refuse no sizes that their shape rules accept, but warn of some. The user would see that."""

PIVOTS = ("pivots", "LU_pivots")
"""Arguments with row numbers from one. `linalg.ldl_solve` of torch 2.11 does not check them, and zeros would make it
write before the first row. Later versions and other kernels raise."""


def is_of_user(func: OpOverload) -> bool:
    """Whether the kernel is not torch's. Not cached: libraries come and go."""
    if func.namespace != "aten":
        return func.namespace not in OF_TORCH
    return KERNEL_OF_PYTHON.search(dispatch_dump(func.name())) is not None


@functools.cache
def has_meta_kernel(name: str) -> bool:
    """Whether a call without data runs in C++. Kernels that torch has in Python import Dynamo, which takes seconds."""
    kernels = dict(line.split(": ", 1) for line in dispatch_dump(name).splitlines() if ": " in line)
    meta = kernels.get("Meta")
    return "CompositeExplicitAutograd[alias]" in kernels if meta is None else ".py:" not in meta


@functools.cache
def draws(func: OpOverload) -> bool:
    """Whether the kernel may advance a generator. That of cuDNN's RNN has a state among its operands."""
    return torch.Tag.nondeterministic_seeded in func.tags and func.name() != "aten::_cudnn_rnn"


@functools.cache
def place_of_generator(func: OpOverload) -> int | None:
    return next((k for k, one in enumerate(func._schema.arguments) if "Generator" in str(one.type)), None)


def with_own_generator(
    func: OpOverload, args: list, kwargs: dict[str, Any], at: int, device: torch.device
) -> tuple[list, dict]:
    """The arguments with a generator made for this call."""
    made = torch.Generator(device)
    if at < len(args):
        return [*args[:at], made, *args[at + 1 :]], kwargs
    return args, {**kwargs, func._schema.arguments[at].name: made}


def crashes(func: OpOverload) -> bool:
    return func.name() in CRASHES_WITHOUT_ELEMENTS


def warns(func: OpOverload) -> bool:
    return func._schema.name.removeprefix("aten::").removesuffix("_") in WARN
