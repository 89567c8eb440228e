"""How products of float32 are rounded on a GPU, as torch is told to.

    precision_of(torch.float32)                     "tf32" with torch.set_float32_matmul_precision("high"), else "ieee"
    multiplies_in_tensor_cores(torch.bfloat16)      True

Guards watch what is asked here: a graph is compiled anew when it changes.
"""

from __future__ import annotations

import torch


def precision_on_gpus() -> str:
    """Of products of float32 there. Torch has older ways to say it and to ask, which raise an error where somebody has
    used the newer ones."""
    return torch.backends.cuda.matmul.fp32_precision


def precision_of(dtype: torch.dtype) -> str:
    """What becomes of the numbers before they are multiplied: "tf32" cuts them to 10 bits, "ieee" leaves them."""
    return "tf32" if dtype is torch.float32 and precision_on_gpus() == "tf32" else "ieee"


def multiplies_in_tensor_cores(dtype: torch.dtype) -> bool:
    return dtype in (torch.float16, torch.bfloat16) or precision_of(dtype) == "tf32"


__all__ = ["multiplies_in_tensor_cores", "precision_of", "precision_on_gpus"]
