"""Kinds of devices: one record each, with the facts about torch's own kernels there.

    facts_of(x.device).sums_in_float64             whether eager sums float32 in float64 there
    is_host(x.device)                               whether Python and native functions read the memory of x
    gpus_of([x, 2.0, w])                            the GPUs that the tensors are on
    multiplies_in_tensor_cores(torch.bfloat16)      whether a GPU does, under torch's present settings

A new kind of device is a record here. If kernels are compiled for it, it has a target as well (`ops.target_record`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..foundation.torch_private import DisableTorchFunctionSubclass
from .dtypes import HALVES

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    type: str
    """Torch's name."""
    is_host: bool = False
    """Whether Python and native functions read and write its memory, and its work is done when a call returns."""
    rounds_numbers: bool = False
    """Whether eager rounds a number to the half precision of the operand beside it."""
    copies_converted: bool = False
    """Whether eager converts an operand of another dtype into a copy first, which is dense."""
    sums_in_float64: bool = False
    """Whether eager sums the gradients of a channel of float32 in float64."""
    has_wide_statistics: bool = False
    """Whether the statistics of half precisions are float32 whatever the dtype of the parameters."""
    transposes_gradients: bool = False
    """Whether the gradient of a transposed weight of a recurrent layer is transposed too."""
    keeps_log_sigmoid: bool = False
    """Whether log_sigmoid keeps a tensor for its gradient."""
    splits_recurrent_layers: bool = False
    """Whether eager's recurrent operators can be called for one layer of several."""


DEVICES = {
    record.type: record
    for record in (
        DeviceFacts(
            "cpu",
            is_host=True,
            rounds_numbers=True,
            copies_converted=True,
            sums_in_float64=True,
            transposes_gradients=True,
            keeps_log_sigmoid=True,
            splits_recurrent_layers=True,
        ),
        DeviceFacts("cuda", has_wide_statistics=True),
    )
}
"""The devices whose tensors are compiled, by torch's name. Others are only passed on to eager's kernels."""


def facts_of(device: torch.device) -> DeviceFacts:
    return DEVICES.get(device.type) or DeviceFacts(device.type)


def is_host(device: torch.device) -> bool:
    return facts_of(device).is_host


def gpus_of(inputs: Sequence[Any]) -> set[torch.device]:
    """The GPUs that the tensors are on. A tensor subclass's `__torch_function__` is not called."""
    with DisableTorchFunctionSubclass():
        return {x.device for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda}


# -- how a GPU multiplies. Guards cover these settings: a graph is compiled again when they change. --------------------


def precision_on_gpus() -> str:
    """torch's setting for float32 products. Its older getters raise an error if the newer setters were used."""
    return torch.backends.cuda.matmul.fp32_precision


def precision_of(dtype: torch.dtype) -> str:
    """How factors are converted before the product: "tf32" cuts the mantissa to 10 bits, "ieee" changes nothing."""
    return "tf32" if dtype is torch.float32 and precision_on_gpus() == "tf32" else "ieee"


def multiplies_in_tensor_cores(dtype: torch.dtype) -> bool:
    return dtype in HALVES or precision_of(dtype) == "tf32"
