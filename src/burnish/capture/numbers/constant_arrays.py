"""Constant NumPy arrays: arrays that NumPy makes from constants while tracing.

    torch.from_numpy(np.linspace(0, 1, x.shape[-1]))          clone = constant.clone()
    x * np.array([0.2, 0.3, 0.5]).max()                       a number
    return np.zeros(3)                                        rebuilt, as a copy, on each run

While tracing such an array really exists, and a write to it ends the graph first. So its content is known: functions of
it are called while tracing, and a tensor made from it is a copy of a constant. It becomes unknown once torch shares its
memory (``from_numpy``). Arrays from outside, or made from tensors, are never known.
"""

from __future__ import annotations

from typing import Any

import torch

from ...runtime.argument_trees import mapped
from ..engine.torch_call_records import TorchCall
from ..interpreter.frames import MISSING
from . import live_scalars
from .live_scalars import Expression
from .numpy_tables import ARRAY, GIVEN_TO_TORCH, NUMBERS

METHODS = frozenset(
    """
    astype sum mean min max std var prod cumsum cumprod reshape copy tolist item transpose flatten ravel argmax argmin
    argsort round clip dot any all squeeze repeat take conj nonzero searchsorted trace diagonal swapaxes
""".split()
)
COPYING = frozenset((torch.tensor,))
TAKE_DTYPE = frozenset(("tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor"))
"""Torch functions, by name, that make a tensor of numbers."""
SHARING = frozenset((torch.from_numpy, torch.as_tensor))


def is_known(m: Any, value: Any) -> bool:
    return type(value) is ARRAY and m.arrays.get(id(value)) is value


def may_vary(m: Any, number: Any) -> bool:
    """Whether a NumPy scalar may be another one in the next call: it comes from outside, or the graph computes it."""
    return m.heap.origin_of(number) is not None or is_of_graph(m, number)


def are_settled(m: Any, numbers: list) -> bool:
    """Guard the values of NumPy scalars from outside, so that they vary no more. Only under ``fullgraph=True``:
    elsewhere Python reads them after a break, and the graphs serve all values."""
    if not m.options.fullgraph or any(type(n) not in NUMBERS or m.heap.origin_of(n) is None for n in numbers):
        return False
    for number in numbers:
        origin = m.heap.origin_of(number)
        if origin is not None:  # it may be there twice
            m.heap.guard_numpy_number(number, origin.source)
            del m.heap.origins[id(number)]
    return True


def are_constants(m: Any, content: tuple) -> bool:
    """Whether the content of a new tensor holds NumPy scalars, and none that may vary. Python numbers of the same value
    make the same tensor, if the dtype that torch takes from the scalars is given."""
    found: list[Any] = []
    mapped(content, tuple(GIVEN_TO_TORCH), found.append)  # type: ignore[arg-type]
    return bool(found) and not any(may_vary(m, number) for number in found)


def as_live_scalar(m: Any, number: Any) -> Any:
    """The Python number that torch makes of a NumPy scalar from outside, or None."""
    origin = m.heap.origin_of(number)
    if origin is None or type(number.item()) not in (int, float):
        return None
    return live_scalars.make(number.item(), Expression(python_number, (Expression(None, (origin.source,)),)), m)


def python_number(number: Any) -> int | float:
    return number.item()


def is_of_graph(m: Any, value: Any) -> bool:
    """Whether the graph computes the data of an array or NumPy scalar."""
    entry = m.shared_arrays.get(id(value))
    return entry is not None and entry[0] is value


def record_constant_array(m: Any, value: Any) -> Any:
    """Note an array that was made from constants."""
    if type(value) is ARRAY and value.dtype.type in NUMBERS:
        m.arrays[id(value)] = value
    return value


def make_tensor(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """``torch.tensor(array)`` and similar calls, or MISSING."""
    if (
        not args
        or not is_known(m, args[0])
        or function not in COPYING
        and function not in SHARING
        or kwargs.keys() - {"dtype"}
        or len(args) > 1
        or m.region is not None
    ):
        return MISSING
    array = args[0]
    value = m.plainly(function, array, **kwargs)
    if function in SHARING and value.numel() and value.data_ptr() == array.ctypes.data:
        for other in [each for each in m.arrays.values() if shares(each, array)]:
            del m.arrays[id(other)]
        m.shared_arrays[id(array)] = (array, value)
    constant = value.clone()
    recorder = m.recorder
    handle = recorder.input(m.heap.sources.pin(constant), constant)
    recorder.register(value, recorder.add(TorchCall("clone", (handle,), {}, m.user_line())))
    m.answer = None
    return value


def shares(a: Any, b: Any) -> bool:
    import numpy

    return numpy.may_share_memory(a, b)


def build_number(rebuilder: Any, value: Any) -> str:
    """A NumPy scalar in the code that ends a segment."""
    entry = rebuilder.tracer.shared_arrays.get(id(value))
    if entry is None or entry[0] is not value:
        return rebuilder.constant(value)  # type: ignore[no-any-return]
    return rebuilder.name(value, f"{rebuilder.build(entry[1])}.numpy()[()]")  # type: ignore[no-any-return]


def build(rebuilder: Any, value: Any) -> str:
    """An array in the code that ends a segment: a copy of a constant, or a part of one."""
    m = rebuilder.tracer
    made: str
    if is_of_graph(m, value):
        tensor = m.shared_arrays[id(value)][1]
        made = rebuilder.name(value, f"{rebuilder.build(tensor)}.numpy()")
        return made
    if not is_known(m, value):
        return rebuilder.refuse(value)  # type: ignore[no-any-return]
    root = value
    while type(root.base) is ARRAY:
        root = root.base
    if root.base is not None or root is not value and not root.flags.c_contiguous:
        return rebuilder.refuse(value)  # type: ignore[no-any-return]
    if root is value:
        made = rebuilder.name(value, f"{rebuilder.constant(value.copy(order='K'))}.copy(order='K')")
        return made
    record_constant_array(m, root)
    whole, at = rebuilder.build(root), value.ctypes.data - root.ctypes.data
    kind = rebuilder.constant(value.dtype)
    made = rebuilder.name(value, f"{rebuilder.constant(ARRAY)}({value.shape}, {kind}, {whole}, {at}, {value.strides})")
    return made
