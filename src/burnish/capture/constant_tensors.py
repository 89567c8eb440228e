"""Tensors that a graph computes of constants alone: what Python reads of them is the same in every run.

    positions = torch.arange(128)
    if (torch.diff(positions) != 1).any():      no break: which way it goes is known

Only what is sure to answer the same again counts (nothing that draws, nothing that leaves memory as it was), and only
while no recorded call has written to a tensor: what was computed before may be another by then.
"""

from __future__ import annotations

from typing import Any

import torch

from . import torch_calls
from .recorder import Handle

SURE = frozenset("""
    arange zeros ones full eye linspace tril_indices triu_indices
    abs add all amax amin any argmax argmin bitwise_and bitwise_not bitwise_or cat ceil clamp cumsum diff div eq expand
    flatten flip floor floor_divide ge gt le logical_and logical_not logical_or lt max mean min mul ne neg outer permute
    prod remainder repeat reshape roll select sign squeeze stack sub sum t to transpose tril triu unsqueeze view where
    __getitem__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __floordiv__ __mod__ __neg__ __eq__
    __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __invert__ __xor__ bool int long float double
""".split())


def is_constant(m: Any, value: torch.Tensor) -> bool:
    """Whether the one element of a tensor is known."""
    recorder = m.recorder
    handle = recorder.handle_of(value)
    if handle is None or handle.call is None or value.numel() != 1 or recorder.changes_after(0):
        return False
    known: dict[int, bool] = {}

    def holds(arg: Any) -> bool:
        if isinstance(arg, Handle):
            return arg.call is not None and of_call(arg.call)
        if isinstance(arg, (tuple, list)):
            return all(map(holds, arg))
        if isinstance(arg, slice):
            return all(map(holds, (arg.start, arg.stop, arg.step)))
        return type(arg) in torch_calls.IMMEDIATE

    def of_call(at: int) -> bool:
        if at not in known:
            call = recorder.calls[at]
            name = torch_calls.name_of(call.target)
            known[at] = name in SURE and isinstance(call.target, (str, *torch_calls.STATIC)) and holds(call.args) \
                and all(map(holds, call.kwargs.values()))
        return known[at]

    return of_call(handle.call)
