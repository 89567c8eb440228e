"""Reference of the primitive `quantized_linear` in eager torch: products with a quantized weight.

    y = x @ w.T + bias      w[n, k] = (q[n, k] - offset) * scales[n, k // group] + shifts[n, k // group]

q has 8 bits (int8 or uint8, [N, K]) or 4: uint8 [N, K / 2], the low half of a byte before its high half. `scales` and
`shifts` are [N, K / group]; either may be missing. The sum over k is that of the weight in float32, rounded to x's
dtype.
"""

from __future__ import annotations

import torch

PANEL = 1 << 20
"""Numbers of the weight that are computed at a time: they stay in a core's cache until they are multiplied."""


def quantized_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    shifts: torch.Tensor | None,
    bias: torch.Tensor | None,
    bits: int,
    group: int,
    offset: int,
) -> torch.Tensor:
    outputs = weight.shape[0]
    made = torch.empty(x.shape[0], outputs, dtype=x.dtype, device=x.device)
    rows = max(PANEL // max(x.shape[1], 1), 1)
    for start in range(0, outputs, rows):
        part = slice(start, start + rows)
        panel = dequantized(
            weight[part], *(v if v is None else v[part] for v in (scales, shifts)), bits, group, offset, x.dtype
        )
        product = x @ panel.t() if bias is None else torch.addmm(bias[part], x, panel.t())
        made[:, part] = product
    return made


def dequantized(
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    shifts: torch.Tensor | None,
    bits: int,
    group: int,
    offset: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    numbers = unpacked(weight, bits).to(torch.float32)
    if offset:
        numbers -= offset
    if scales is None and shifts is None:
        return numbers.to(dtype)
    groups = numbers.view(numbers.shape[0], -1, group)
    if scales is not None:
        groups *= scales[:, :, None]
    if shifts is not None:
        groups += shifts[:, :, None]
    return numbers.to(dtype)


def unpacked(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """The integers, [N, K]."""
    return weight if bits == 8 else torch.stack((weight & 15, weight >> 4), -1).flatten(1)
