"""Guards on integers that calls take as positions and counts: a segment serves only those that eager accepts.

    x.select(0, n)              -4 <= n, n < 4 or the like        x has four rows
    x.narrow(0, n, 2)           0 <= n, n + 2 <= 4
    x.topk(n)                   0 <= n, n <= 4
    x.split(n)                  as many parts as in the trace

A comparison of live numbers guards its outcome, so asking is all that these functions do. For any other number the
segment is not used: plain Python, in the next trace, raises eager's error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers import graph_numbers, live_scalars

PARAMETERS = {
    "select": ("dim", "index"),
    "select_copy": ("dim", "index"),
    "narrow": ("dim", "start", "length"),
    "narrow_copy": ("dim", "start", "length"),
    "topk": ("k", "dim", "largest", "sorted"),
    "kthvalue": ("k", "dim", "keepdim"),
    "split": ("split_size", "dim"),
    "select_scatter": ("src", "dim", "index"),
    "slice_scatter": ("src", "dim", "start", "end", "step"),
    "pad": ("pad", "mode", "value"),
    "as_strided": ("size", "stride", "storage_offset"),
    "as_strided_copy": ("size", "stride", "storage_offset"),
    "as_strided_": ("size", "stride", "storage_offset"),
    "as_strided_scatter": ("src", "size", "stride", "storage_offset"),
    "roll": ("shifts", "dims"),
}
"""The parameters after the tensor, by call. The dimension is the last one, or 0 for a slice or a split, if it is not
given. The size of a tensor that is split into parts of a constant size is guarded by value."""

OTHER_NAMES = {"split_size_or_sections": "split_size", "split_sizes": "split_size"}

IRRELEVANT = ("src", "largest", "sorted", "keepdim", "out")


def check(sizes: Any, name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Guard that the call is valid, if it has live numbers or sizes."""
    name = name.partition(".")[0]  # an overload
    if name not in PARAMETERS:
        return
    tensor, values = bound(name, given, keywords)
    if any(map(graph_numbers.is_graph_number, flat(values.values()))):
        return
    if type(tensor) not in TENSOR_TYPES:  # the sizes of a subclass may be unknown
        sizes.symbols.settle_all(f"{name}() of another type of tensor")
    if not isinstance(tensor, torch.Tensor) or not values.keys() <= {*PARAMETERS[name], *IRRELEVANT}:
        settle_all(sizes, (*given, *keywords.values()))
        return
    values = {key: value for key, value in values.items() if key not in IRRELEVANT}
    if name.startswith("as_strided"):
        settle_memory(sizes, tensor, values)
        return
    shape = sizes.shape_of(tensor) or tuple(tensor.shape)
    if not is_any_live((*shape, *flat(values.values()))):
        return
    if not (check_pad if name == "pad" else check_roll if name == "roll" else check_dimension)(
        sizes, name, shape, values
    ):
        settle_all(sizes, (tensor, *values.values()))


def bound(name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The tensor and the other arguments by name; an argument too many is named by its position."""
    named = {OTHER_NAMES.get(key, key): value for key, value in keywords.items()}
    places = ("tensor", *PARAMETERS[name])
    values = {places[k] if k < len(places) else f"{k}": value for k, value in enumerate(given)} | named
    found = [values.pop(key) for key in ("tensor", "input", "self") if key in values]
    return found[0] if len(found) == 1 else None, values


def settle_all(sizes: Any, arguments: Sequence[Any]) -> None:
    """A value that is not understood is the same in all calls of a segment."""
    for value in flat(arguments):
        for part in (sizes.shape_of(value) or ()) if isinstance(value, torch.Tensor) else flat((value,)):
            live_scalars.settled(part)


def check_dimension(sizes: Any, name: str, shape: Sequence[Any], values: dict[str, Any]) -> bool:
    """Whether the arguments are understood. They are then guarded."""
    dim = live_scalars.settled(values.pop("dim", 0 if name in ("split", "slice_scatter") else -1))
    if type(dim) is not int or not -len(shape) <= dim < len(shape):
        return False
    size, parts = shape[dim], [part for part in flat(values.values()) if part is not None]
    if not parts or not are_integers(parts):
        return not parts and name == "slice_scatter"
    if is_any_live(parts if name == "split" else (size, *parts)):
        for part in parts:
            sizes.takes(part, name)
        try:
            CHECKS[name](sizes, size, **values)
        except TypeError:  # an argument is missing
            return False
    return True


def check_roll(sizes: Any, name: str, shape: Sequence[Any], values: dict[str, Any]) -> bool:
    """A shift starts again at the end of the dimension: it is guarded to be less."""
    if sizes.tracer.options.shows_operators:
        return True  # the call is made as it is
    shifts, dims = ([live_scalars.settled(n) for n in flat((values.get(key, ()),))] for key in ("shifts", "dims"))
    if not dims:
        return True  # eager rolls them
    if not are_integers((*shifts, *dims)) or len(shifts) != len(dims) or len(set(dims)) != len(dims):
        return False
    for shift, dim in zip(shifts, dims, strict=True):
        if not -len(shape) <= dim < len(shape):
            return False
        if isinstance(shape[dim], live_scalars.Live) and not abs(shift) < shape[dim]:
            live_scalars.settled(shape[dim])
    return True


def is_any_live(values: Sequence[Any]) -> bool:
    return any(isinstance(value, live_scalars.Live) for value in values)


def are_integers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, live_scalars.LiveInt) for value in values)


def settle_memory(sizes: Any, tensor: Any, values: Mapping[str, Any]) -> None:
    """What such a view reads depends on the memory, whose size is not a size of a tensor. The elements of an input
    are there, and a view of constant size from its first element on may read as many."""
    shape = sizes.shape_of(tensor)
    if not shape and not is_any_live(flat(values.values())):
        return
    size, stride = values.get("size"), values.get("stride")
    is_plain = isinstance(size, (tuple, list)) and isinstance(stride, (tuple, list)) and len(size) == len(stride)
    if is_plain and values.get("storage_offset") is None and all(type(n) is int for n in (*size, *stride)):
        handle = sizes.tracer.recorder.handle_of(tensor)
        is_input = handle is None or handle.call is None
        if is_input and tensor.is_contiguous() and min(shape) > 1 and min((*size, *stride), default=0) >= 0:
            reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
            if math.prod(shape) >= reach:
                return
    settle_all(sizes, (tensor, *values.values()))


def check_pad(sizes: Any, name: str, shape: Sequence[Any], values: dict[str, Any]) -> bool:
    """Elements are cut off where the padding is negative, and copied from within the tensor in the other modes."""
    pad, mode = values.get("pad", ()), values.get("mode", "constant")
    if not isinstance(pad, (tuple, list)) or not are_integers(pad) or len(pad) > 2 * len(shape) or len(pad) % 2:
        return False
    for part in pad:
        sizes.takes(part, "pad")
    for k in range(len(pad) // 2):
        size, sides = shape[-1 - k], pad[2 * k : 2 * k + 2]
        if not is_any_live((size, *sides)):
            continue
        for side in sides:
            if side < 0:
                size + side >= 0  # noqa: B015  # asking is what guards
            elif mode == "reflect":
                side < size  # noqa: B015
            elif mode == "circular":
                side <= size  # noqa: B015
        size + sides[0] + sides[1] >= 0  # noqa: B015
    return True


def flat(values: Any) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, (tuple, list)) else (value,))]


def check_index(sizes: Any, size: Any, index: Any) -> None:
    if index < 0:
        if index + size >= 0:
            sizes.symbols.note_end(-index, size)
    elif index < size:
        sizes.symbols.note_end(index, size, 1)


def check_range(sizes: Any, size: Any, start: Any, length: Any) -> None:
    if start < 0:
        start = start + size
        start < 0  # noqa: B015
    length < 0  # noqa: B015
    if start + length <= size:
        sizes.symbols.note_end(start + length, size)


def check_count(sizes: Any, size: Any, k: Any) -> None:
    """Both 0 and 1 are asked about: the smallest element is number one."""
    k < 1  # noqa: B015
    k < 0  # noqa: B015
    if k <= size:
        sizes.symbols.note_end(k, size)


def check_parts(sizes: Any, size: Any, split_size: Any) -> None:
    """How many parts there are is a constant."""
    if isinstance(split_size, (tuple, list)):
        for part in split_size:
            part < 0  # noqa: B015
        sum(split_size[1:], split_size[0]) == size if split_size else None  # noqa: B015
    elif split_size > 0:
        (size + split_size - 1) // split_size == -(-live_scalars.plain_of(size) // live_scalars.plain_of(split_size))  # noqa: B015


def check_chunks(size: Any, name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """How many parts there are is a constant: of one call with a number of chunks, the one that torch makes of it."""
    chunks = keywords.get("chunks", given[1] if len(given) > 1 else None)
    is_chunked = name in ("chunk", "unsafe_chunk") and type(chunks) is int and chunks > 0
    if not is_chunked or live_scalars.plain_of(size) < 1:
        live_scalars.settled(size)
    elif isinstance(size, live_scalars.Live) and size > 0:
        check_parts(None, size, (size + chunks - 1) // chunks)


def check_slice(sizes: Any, size: Any, start: Any = None, end: Any = None, step: Any = None) -> None:
    sizes.check_part(slice(start, end, step), size)


CHECKS: dict[str, Callable[..., None]] = {
    "select": check_index,
    "select_copy": check_index,
    "narrow": check_range,
    "narrow_copy": check_range,
    "topk": check_count,
    "kthvalue": check_count,
    "split": check_parts,
    "select_scatter": check_index,
    "slice_scatter": check_slice,
}
