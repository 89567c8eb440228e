"""Float32 matmul precision on a GPU (TF32 or IEEE), as torch's settings say.

    precision_of(torch.float32)                     "tf32" with torch.set_float32_matmul_precision("high"), else "ieee"
    multiplies_in_tensor_cores(torch.bfloat16)      True

Guards cover this state: a graph is compiled again when it changes.
"""

from __future__ import annotations

import torch

from .dtypes import HALVES


def precision_on_gpus() -> str:
    """torch's setting for float32 products. Its older getters raise an error if the newer setters were used."""
    return torch.backends.cuda.matmul.fp32_precision


def precision_of(dtype: torch.dtype) -> str:
    """How factors are converted before the product: "tf32" cuts the mantissa to 10 bits, "ieee" changes nothing."""
    return "tf32" if dtype is torch.float32 and precision_on_gpus() == "tf32" else "ieee"


def multiplies_in_tensor_cores(dtype: torch.dtype) -> bool:
    return dtype in HALVES or precision_of(dtype) == "tf32"
