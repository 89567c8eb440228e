"""Graph arrays: NumPy arrays and scalars whose data a graph computes.

    a = x.numpy()                 shows the memory of x
    b = np.sin(a) + table         ``table`` is an array from outside: a graph input, shown by ``torch.from_numpy``
    return b, b.sum()             outputs of the graph: ``G[0].numpy()`` and ``G[1].numpy()[()]``

While tracing, each such array exists and shares the memory of a tensor that the recorder knows. A NumPy scalar has a
tensor without dimensions. What the graph computes for the tensor holds for the array, writes and views included.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ...tensors.device_facts import is_host
from ..guards.tensor_metadata import TENSOR_TYPES
from ..interpreter.frames import MISSING
from ..numbers import constant_arrays
from ..numbers.numpy_tables import ARRAY, NUMBERS, tensor_of_array


def tensor_of(m: Any, value: Any) -> torch.Tensor | None:
    """The tensor of the graph that holds the data of an array or scalar, or None."""
    entry = m.shared_arrays.get(id(value))
    if entry is not None and entry[0] is value:
        return entry[1]  # type: ignore[no-any-return]
    if type(value) is not ARRAY:
        return None
    origin = m.heap.origin_of(value)
    if origin is not None:
        return of_outside(m, value, origin)
    return of_constant(m, value) if constant_arrays.is_known(m, value) else None


def of_outside(m: Any, array: Any, origin: Any) -> torch.Tensor | None:
    """A tensor that shows an array from outside; its dtype, size and strides are guarded like those of any input."""
    tensor = tensor_of_array(array)
    if tensor is None:
        return None
    m.heap.admit(tensor, origin.source.child("array"))
    m.shared_arrays[id(array)] = (array, tensor)
    return tensor


def of_constant(m: Any, array: Any) -> torch.Tensor | None:
    """The present content of an array that was made from constants."""
    constant = tensor_of_array(array.copy(order="K"))
    if constant is None:
        return None
    recorder = m.recorder
    handle = recorder.input(m.heap.sources.pin(constant), constant)
    recorder.known[id(constant)] = (weakref.ref(constant), handle)
    return constant


def is_data(m: Any, value: Any) -> bool:
    """Whether a value is an array or scalar whose data the graph computes or is given."""
    kind = type(value)
    if kind is ARRAY:
        return not constant_arrays.is_known(m, value)
    if kind in NUMBERS:
        return constant_arrays.is_of_graph(m, value)
    return kind in (tuple, list) and any([is_data(m, part) for part in value])


def array_of(m: Any, tensor: torch.Tensor) -> Any:
    """A new array that shows a tensor's memory."""
    made = tensor.numpy()
    m.shared_arrays[id(made)] = (made, tensor)
    return made


def scalar_of(m: Any, tensor: torch.Tensor) -> Any:
    """A new NumPy scalar with the value of a tensor without dimensions."""
    made = tensor.numpy()[()]
    m.shared_arrays[id(made)] = (made, tensor)
    return made


def why_not_shown(m: Any, tensor: Any) -> str | None:
    """Why ``tensor.numpy()`` cannot be an array of the graph."""
    if type(tensor) not in TENSOR_TYPES or not m.knows(tensor) or m.region is not None:
        return "it is not known to the graph"
    if tensor.requires_grad or not is_host(tensor.device) or tensor.layout is not torch.strided:
        return "torch refuses"
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
        return "it is a lazy view"
    return None if tensor.dtype in SHOWN else f"its dtype is {tensor.dtype}"


SHOWN = frozenset(
    getattr(torch, name)
    for name in "bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128".split()
)
"""Dtypes of arrays whose operations torch has."""


def answer_array_of(m: Any, tensor: torch.Tensor) -> Any:
    """``tensor.numpy()``"""
    made = array_of(m, tensor)
    if m.frame is not None:
        m.answer = (m.frame, m.frame.pc, made)
    return made


def forced_array_of(m: Any, tensor: Any) -> Any:
    """``tensor.numpy(force=True)``, or MISSING."""
    for step in (torch.Tensor.detach, torch.Tensor.cpu, torch.Tensor.resolve_conj, torch.Tensor.resolve_neg):
        tensor = m.perform(step, tensor)
    return MISSING if why_not_shown(m, tensor) else answer_array_of(m, tensor)
