"""Constant tensors: tensors that a graph computes from constants alone can be read without a break.

    positions = torch.arange(128)
    if (torch.diff(positions) != 1).any():      no break: the branch is known
    sizes = torch.tensor([4, 32])
    positions.view(sizes[0], -1)                no break: view(4, -1)

Only calls with a repeatable result count (no random numbers, no uninitialized memory), and only while no recorded call
has written to a tensor since the first of them: the value may have changed by then.
"""

from __future__ import annotations

from typing import Any

import torch

from ..engine.torch_call_records import Handle, TorchCall
from ..guards.tensor_metadata import TENSOR_TYPES
from ..pytorch import torch_call_roles, writes_of_calls
from ..symbolic_sizes.unbacked_sizes import takes_sizes
from . import graph_numbers, live_scalars
from .detect_implicit_item_reads import takes_numbers

SURE = frozenset(
    """
    arange zeros ones full eye linspace tril_indices triu_indices tensor as_tensor unbind __iter__
    abs add all amax amin any argmax argmin bitwise_and bitwise_not bitwise_or cat ceil clamp cumsum diff div eq expand
    flatten flip floor floor_divide ge gt le logical_and logical_not logical_or lt max mean min mul ne neg outer permute
    prod remainder repeat reshape roll select sign squeeze stack sub sum t to transpose tril triu unsqueeze view where
    __getitem__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __floordiv__ __mod__ __neg__ __eq__
    __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ __invert__ __xor__ bool int long float double
""".split()
)


MAKERS = frozenset("arange zeros ones empty rand randn".split())
"""Every integer argument of these determines the size or the content of their result."""

SIZERS = frozenset(
    """
    view reshape expand repeat tile narrow split unflatten pad interpolate new_zeros new_ones new_empty
    broadcast_to as_strided
""".split()
)
"""... and of these, except for the tensor that they are called on."""


def is_constant(m: Any, value: torch.Tensor) -> bool:
    """Whether the value of a one-element tensor is known."""
    return value.numel() == 1 and is_known(m, value)


def is_known(m: Any, value: Any) -> bool:
    """Whether all elements of a tensor are known."""
    recorder = m.recorder
    handle = recorder.handle_of(value) if type(value) in TENSOR_TYPES else None
    if handle is None or handle.call is None:
        return False
    known: dict[int, bool] = {}
    filled: list[Any] = []  # live numbers that are the content of tensors

    def holds(arg: Any) -> bool:
        if isinstance(arg, Handle):
            return arg.call is not None and of_call(arg.call)
        if isinstance(arg, (tuple, list)):
            return all(map(holds, arg))
        if isinstance(arg, slice):
            return all(map(holds, (arg.start, arg.stop, arg.step)))
        return type(arg) in torch_call_roles.IMMEDIATE

    def of_call(at: int) -> bool:
        if at not in known:
            call = recorder.calls[at]
            number = live_content(m, call)
            if number is not None:
                filled.append(number)
                known[at] = True
                return True
            name = torch_call_roles.name_of(call.target)
            known[at] = (
                name in SURE
                and isinstance(call.target, (str, *torch_call_roles.STATIC))
                and holds(call.args)
                and all(map(holds, call.kwargs.values()))
            )
        return known[at]

    if not of_call(handle.call) or writes_of_calls.changes_after(recorder.calls, min(known), or_python=True):
        return False
    for number in filled:
        number.settle()
    return True


def live_content(m: Any, call: TorchCall) -> Any:
    """The live scalar that ``torch.tensor`` has made a tensor of, by this call; None for other calls."""
    if call.target is not torch.full or call.args[:1] != ((),) or not isinstance(call.args[-1], Handle):
        return None  # or the program's own torch.full, which may be given names
    source = call.args[1].source
    if call.args[1].call is not None or not isinstance(source, live_scalars.Expression):
        return None
    return live_scalars.make(m.recorder.examples[call.args[1].key], source, m)


def number_read(m: Any, tensor: Any) -> Any:
    """The live number that ``torch.tensor`` has made this tensor of; None for other tensors."""
    handle = m.recorder.handle_of(tensor) if type(tensor) in TENSOR_TYPES and tensor.ndim == 0 else None
    if (
        handle is None
        or handle.call is None
        or handle.path
        or writes_of_calls.may_change_after(m.recorder.calls, handle.call)
    ):
        return None
    number = live_content(m, m.recorder.calls[handle.call])
    exact = {live_scalars.LiveInt: torch.int64, live_scalars.LiveFloat: torch.float64}
    if tensor.dtype is not exact.get(type(number)):
        return None
    number.is_read = True
    return number


def with_numbers(m: Any, function: Any, name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a torch call, with tensors replaced by numbers where torch would read a number from them."""
    if name not in MAKERS and name not in SIZERS or not (takes_numbers(args) or takes_numbers(kwargs.values())):
        return args, kwargs
    reads = takes_sizes(m, name)
    first = name in SIZERS and not isinstance(getattr(function, "__self__", None), torch.Tensor)
    return (*args[:first], *[number_of(m, value, reads) for value in args[first:]]), {
        key: value if key in ("input", "self") else number_of(m, value, reads) for key, value in kwargs.items()
    }


def number_of(m: Any, value: Any, reads: bool = False) -> Any:
    """The number for a known one-element integer tensor, also inside a size or a slice. ``reads``: that of any other
    tensor becomes a graph number."""
    kind = type(value)
    if kind in TENSOR_TYPES:
        if value.is_floating_point() or value.is_complex() or value.dtype is torch.bool:
            return value
        number = number_read(m, value)
        if number is not None:
            return number
        if is_constant(m, value):
            return m.plainly(value.item)
        return graph_numbers.read(m, value) if reads and graph_numbers.stays_in_graph(m, value) else value
    if kind is tuple or kind is list:
        return kind([number_of(m, part, reads) for part in value]) if takes_numbers(value) else value
    if kind is slice:
        return slice(*[number_of(m, part, reads) for part in (value.start, value.stop, value.step)])
    return value


def with_limits(m: Any, key: Any) -> Any:
    """A subscript of a tensor: the limits of a slice become numbers, and so do known truths. Another index stays a
    tensor."""
    reads = takes_sizes(m, "__getitem__")
    if type(key) is slice and takes_numbers((key,)):
        return number_of(m, key, reads)
    if type(key) is tuple and any(type(part) is slice or is_known_truth(m, part) for part in key):
        return tuple([number_of(m, part, reads) if type(part) is slice else truth_of(m, part) for part in key])
    return truth_of(m, key)


def is_known_truth(m: Any, value: Any) -> bool:
    return type(value) in TENSOR_TYPES and value.dtype is torch.bool and value.ndim == 0 and is_constant(m, value)


def truth_of(m: Any, value: Any) -> Any:
    return m.plainly(value.item) if is_known_truth(m, value) else value
