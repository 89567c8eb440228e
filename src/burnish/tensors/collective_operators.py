"""Collective operators: the namespaces of operators that communicate with other processes.

    y = torch.ops._c10d_functional.all_reduce(x, "sum", group)      starts; the data is not there yet
    z = torch.ops._c10d_functional.wait_tensor(y)                   finds the pending work by the tensor's storage

So they are called unchanged on the same tensors as in eager, never within our kernels or plans.
"""

from __future__ import annotations

from typing import Any

import torch

NAMESPACES = frozenset(
    ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
)


def is_collective_operator(operator: Any) -> bool:
    """Takes overloads and packets from ``torch.ops``."""
    name = operator.name() if isinstance(operator, torch._ops.OpOverload) else operator._qualified_op_name
    return name.partition("::")[0] in NAMESPACES
