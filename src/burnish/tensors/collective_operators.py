"""Operators that other processes take part in.

    y = torch.ops._c10d_functional.all_reduce(x, "sum", group)      begun, and not there yet
    z = torch.ops._c10d_functional.wait_tensor(y)                   finds what was begun by the tensor object's storage

So they are called as they are, on the tensors that eager would call them on: never by a kernel or a plan of ours.
"""

from __future__ import annotations

from typing import Any

import torch

NAMESPACES = frozenset(
    ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
)


def is_collective_operator(operator: Any) -> bool:
    """Of an operator from ``torch.ops``, or a family of overloads."""
    name = operator.name() if isinstance(operator, torch._ops.OpOverload) else operator._qualified_op_name
    return name.partition("::")[0] in NAMESPACES
