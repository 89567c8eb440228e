"""Philox random numbers in eager torch, one operator at a time: for those that are not part of a kernel.

    bits = random_bits(random_seed(), (2, 3))        the same bits that kernels compute, see codegen.math.philox
    uniform(bits, 0.0, 1.0, torch.float32)

`random_seed` is how compiled code draws from torch's generator. Everything else follows from the seed.
"""

from __future__ import annotations

import math

import torch

from ...tensors.device_facts import is_host
from ...tensors.dtypes import DIGITS, NAMES

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def random_seed(device: torch.device | None = None) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device=device).random_()


def random_seeds(count: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """On a CPU, the seeds that single draws would give. On a GPU they differ: each is aligned to 16 bytes, so that
    kernels read it like a seed drawn alone."""
    if is_host(device):
        return torch.empty(count, dtype=torch.int64).random_().unbind()
    return torch.empty((count, 2), dtype=torch.int64, device=device).random_().select(1, 0).unbind()


def random_bits(seed: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    counter = torch.arange(math.prod(size), device=seed.device).reshape(size)
    words = [counter & WORD, counter >> 32, torch.zeros_like(counter), torch.zeros_like(counter)]
    keys = [seed & WORD, seed >> 32 & WORD]
    for _ in range(10):
        low, high = words[0] * MULTIPLIERS[0], words[2] * MULTIPLIERS[1]
        words = [high >> 32 & WORD ^ words[1] ^ keys[0], high & WORD, low >> 32 & WORD ^ words[3] ^ keys[1], low & WORD]
        keys = [key + step & WORD for key, step in zip(keys, WEYL, strict=True)]
    return words[0] | words[1] << 32


def uniform(bits: torch.Tensor, low: float, high: float, dtype: torch.dtype) -> torch.Tensor:
    digits = DIGITS[NAMES[dtype]]
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    return ((bits & (1 << digits) - 1).to(computed) * 2.0**-digits * (high - low) + low).to(dtype)


def normal(bits: torch.Tensor, mean: float, std: float, dtype: torch.dtype) -> torch.Tensor:
    u = ((bits & WORD).double() + 0.5) * 2.0**-32
    angle = (bits >> 32).double() * (math.pi * 2.0**-32)
    return (torch.sqrt(-2 * torch.log(u)) * torch.sin(angle) * std + mean).to(dtype)


def chance(bits: torch.Tensor, p: float) -> torch.Tensor:
    return (bits & WORD) < round(p * 2.0**32)


def below(bits: torch.Tensor, n: int) -> torch.Tensor:
    return (bits & WORD) * n >> 32 if n <= 1 << 31 else (bits & (1 << 63) - 1) % n


FUNCTIONS = {
    "random_seed": random_seed,
    "random_seeds": random_seeds,
    "random_bits": random_bits,
    "uniform": uniform,
    "normal": normal,
    "chance": chance,
    "below": below,
}
