"""Collective operators: the namespaces of operators that communicate with other processes.

    y = torch.ops._c10d_functional.all_reduce(x, "sum", group)      starts; the data is not there yet
    z = torch.ops._c10d_functional.wait_tensor(y)                   finds the pending work by the tensor's storage

So they are called unchanged on the same tensors as in eager, never within our kernels or plans.
"""

from __future__ import annotations

from typing import Any

from ..foundation.torch_private import OpOverload, OpOverloadPacket

NAMESPACES = frozenset(
    ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
)


def is_collective_operator(operator: Any) -> bool:
    """Takes overloads and packets from ``torch.ops``."""
    return _name_of(operator).partition("::")[0] in NAMESPACES


def is_wait(target: Any) -> bool:
    """Whether a node's target waits for a collective that was started before."""
    return isinstance(target, OPERATORS) and _name_of(target).endswith("c10d_functional::wait_tensor")


OPERATORS = (OpOverload, OpOverloadPacket)


def _name_of(operator: Any) -> str:
    return operator.name() if isinstance(operator, OpOverload) else operator._qualified_op_name
