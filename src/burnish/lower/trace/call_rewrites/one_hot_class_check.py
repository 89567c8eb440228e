"""Checks the class indices of `one_hot`.

    h = one_hot(i, 5)     =>     check any(i < 0 or i >= 5)
                                 h = i[..., None] == arange(5)

Eager checks them in C++ where it has data, and computes by comparison where it has none, as in a trace.
"""

from __future__ import annotations

from typing import Any

import torch

from ....ir.error_check_nodes import add_check
from ....ir.graph_builder import Builder
from ....ops.error_conditions import InRange
from ....tensors.device_facts import is_host


def classes_of(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    given = (*args, *[kwargs[name] for name in ("input", "tensor", "num_classes") if name in kwargs], None)
    return given[0], given[1]


def is_one_hot(target: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    if getattr(target, "__name__", "") != "one_hot":
        return False
    x, count = classes_of(args, kwargs)
    return (
        isinstance(x, torch.Tensor)
        and x.dtype is torch.int64
        and isinstance(count, int)
        and count >= 0
        and is_host(x.device)
        and x.numel() > 0
    )


def check_classes(build: Builder, args: tuple, kwargs: dict[str, Any]) -> None:
    x, count = classes_of(args, kwargs)
    value = x.value  # type: ignore[attr-defined]
    add_check(build, InRange(value, 0, count), "aten.one_hot.default", (value, count))
