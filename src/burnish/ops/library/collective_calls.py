"""Collectives inside a program: an operator that communicates with other processes, and the wait for its result.

    y = _c10d_functional.all_reduce x, "sum", "0"          starts and waits: the result has its data

All processes run the same collectives in the same order, so these nodes are treated like those that draw random
numbers: none is eliminated, merged with another, moved across another or computed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..operator_record import record

COLLECTIVES = """
    _c10d_functional.all_reduce _c10d_functional.all_gather_into_tensor _c10d_functional.reduce_scatter_tensor
    _c10d_functional.all_to_all_single _c10d_functional.broadcast _dtensor.shard_dim_alltoall
""".split()


def then_wait(operator: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor.default(operator(*args, **kwargs))


def is_collective(name: str) -> bool:
    return name.removesuffix(".default") in COLLECTIVES


for _name in COLLECTIVES:
    record(f"{_name}.default").notes.update(run=lambda node: functools.partial(then_wait, node.op.target), draws=True)
