"""The trace of a graph with `DTensor`s: torch's dispatcher applies their rules, and the calls on local tensors are
recorded.

    mm(x, weight)       of two DTensors            mm = aten.mm.default x, weight          their local tensors
    y.full_tensor()                          =>    y = _c10d_functional.all_reduce mm, "sum", "0"

The rules ask for result types with tensors that have no data: these calls are not part of the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from ....captured_graph.distributed_tensor_nodes import api
from ....ir.frozen_values import is_attention_without_dropout
from ....ir.untraceable_graph import Untraceable
from ....ops.library.collective_calls import is_collective
from ....tensors.collective_operators import is_collective_operator, is_wait
from ....tensors.device_facts import is_host
from ..aten_tracer import AtenTracer
from ..trace_tensor import TraceTensor


class DistributedTracer(AtenTracer):
    is_local = True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if api().DTensor in types:
            return NotImplemented  # torch's dispatcher goes on with the rules
        kwargs = kwargs or {}
        if TraceTensor not in types and is_without_data(args, kwargs):
            return func(*args, **kwargs)
        if draws_on_gpu(func, args, kwargs):
            raise Untraceable(f"{func} draws from a generator on a GPU, whose state the rules of DTensor change")
        if not is_collective_operator(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        if is_wait(func) or func.name() == "_c10d_functional::_wrap_tensor_autograd":
            return TraceTensor.make(args[0].value, args[0].storage_offset())
        if not is_collective(str(func)):
            raise Untraceable(f"{func} waits for other processes")
        return self.perform(func, args, kwargs)


def draws_on_gpu(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    if torch.Tag.nondeterministic_seeded not in func.tags or is_attention_without_dropout(func, args, kwargs):
        return False
    devices = [x.device for x in args if isinstance(x, torch.Tensor)]
    if kwargs.get("device") is not None:
        devices.append(torch.device(kwargs["device"]))
    return not all(map(is_host, devices))


def is_without_data(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a call makes or takes tensors of the device "meta"."""
    if (device := kwargs.get("device")) is not None:
        return torch.device(device).type == "meta"
    return any(isinstance(x, torch.Tensor) and x.is_meta for x in args)
