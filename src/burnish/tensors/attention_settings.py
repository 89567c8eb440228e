"""Which kernels ``scaled_dot_product_attention`` may use: torch's settings, read and set together.

before = attention_settings()
run()                              # may contain ``with sdpa_kernel(SDPBackend.MATH)``
set_attention(before)
"""

from __future__ import annotations

import torch

_KINDS = ("flash", "math", "mem_efficient", "cudnn", "overrideable")
_GETTERS = [getattr(torch._C, f"_get_{kind}_sdp_enabled") for kind in _KINDS] + [torch._C._get_sdp_priority_order]
ATTENTION_SETTERS = [getattr(torch._C, f"_set_sdp_use_{kind}") for kind in _KINDS] + [torch._C._set_sdp_priority_order]


def attention_settings() -> tuple:
    return tuple(get() for get in _GETTERS)


def set_attention(settings: tuple) -> None:
    if settings != attention_settings():
        for setter, value in zip(ATTENTION_SETTERS, settings, strict=True):
            setter(value)
