"""Guards on integers that calls take as positions and counts: a segment serves only those that eager accepts.

    x.select(0, n)              -4 <= n, n < 4 or the like        x has four rows
    x.narrow(0, n, 2)           0 <= n, n + 2 <= 4
    x.topk(n)                   0 <= n, n <= 4
    x.split(n)                  as many parts as in the trace

A comparison of live numbers guards its outcome, so asking is all that these functions do. For any other number the
segment is not used: plain Python, in the next trace, raises eager's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers import graph_numbers, live_scalars

PARAMETERS = {
    "select": ("dim", "index"),
    "narrow": ("dim", "start", "length"),
    "topk": ("k", "dim"),
    "kthvalue": ("k", "dim"),
    "split": ("split_size", "dim"),
    "select_scatter": ("src", "dim", "index"),
    "slice_scatter": ("src", "dim", "start", "end", "step"),
    "pad": ("pad", "mode", "value"),
    "as_strided": ("size", "stride", "storage_offset"),
}
"""The parameters after the tensor, by call. The dimension is the last one, or 0 for a slice or a split, if it is not
given. The size of a tensor that is split into parts of a constant size is guarded by value."""


def check(sizes: Any, name: str, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Guard that the call is valid, if it has live numbers or sizes."""
    if name not in PARAMETERS:
        return
    tensor, values = given[0] if given else None, {**dict(zip(PARAMETERS[name], given[1:], strict=False)), **keywords}
    if type(tensor) not in TENSOR_TYPES or any(map(graph_numbers.is_graph_number, flat(values.values()))):
        return
    if name == "as_strided":
        settle_memory(sizes, tensor, values)
        return
    shape = sizes.shape_of(tensor) or tuple(tensor.shape)
    if name == "pad":
        check_pad(sizes, shape, **values)
        return
    values.pop("src", None)
    values["dim"] = dim = live_scalars.settled(values.get("dim", 0 if name in ("split", "slice_scatter") else -1))
    if type(dim) is not int or not -len(shape) <= dim < len(shape):
        return
    size, parts = shape[dim], [part for part in flat(v for k, v in values.items() if k != "dim") if part is not None]
    if is_any_live(parts if name == "split" else (size, *parts)) and are_integers(parts):
        for part in parts:
            sizes.takes(part, name)
        CHECKS[name](sizes, size, **{key: value for key, value in values.items() if key != "dim"})


def is_any_live(values: Sequence[Any]) -> bool:
    return any(isinstance(value, live_scalars.Live) for value in values)


def are_integers(values: Sequence[Any]) -> bool:
    return all(type(value) in (int, live_scalars.LiveInt) for value in values)


def settle_memory(sizes: Any, tensor: Any, values: Mapping[str, Any]) -> None:
    """What such a view reads is a matter of the memory, whose size is no size of a tensor."""
    if is_any_live(flat(values.values())) or sizes.shape_of(tensor):
        for value in flat(values.values()):
            live_scalars.settled(value)
        sizes.specialize_sizes(tensor)


def check_pad(sizes: Any, shape: Sequence[Any], pad: Any = (), mode: Any = "constant", value: Any = None) -> None:
    """Elements are cut off where the padding is negative, and copied from within the tensor in the other modes."""
    if not isinstance(pad, (tuple, list)) or not are_integers(pad) or len(pad) > 2 * len(shape):
        return
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


def flat(values: Any) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, (tuple, list)) else (value,))]


def check_index(sizes: Any, size: Any, index: Any) -> None:
    if index < 0:
        index + size >= 0  # noqa: B015  # asking is what guards
    elif index < size:
        note_end(sizes, index, size, 1)


def check_range(sizes: Any, size: Any, start: Any, length: Any) -> None:
    if start < 0:
        start = start + size
        start < 0  # noqa: B015
    length < 0  # noqa: B015
    if start + length <= size:
        note_end(sizes, start + length, size)


def check_count(sizes: Any, size: Any, k: Any) -> None:
    """Both 0 and 1 are asked about: the smallest element is number one."""
    k < 1  # noqa: B015
    k < 0  # noqa: B015
    if k <= size:
        note_end(sizes, k, size)


def check_parts(sizes: Any, size: Any, split_size: Any) -> None:
    """How many parts there are is a constant."""
    if isinstance(split_size, (tuple, list)):
        for part in split_size:
            part < 0  # noqa: B015
        sum(split_size[1:], split_size[0]) == size if split_size else None  # noqa: B015
    elif split_size > 0:
        (size + split_size - 1) // split_size == -(-plain(size) // plain(split_size))  # noqa: B015


def plain(value: Any) -> Any:
    return value.plain() if isinstance(value, live_scalars.Live) else value


def check_slice(sizes: Any, size: Any, start: Any = None, end: Any = None, step: Any = None) -> None:
    sizes.check_part(slice(start, end, step), size)


def note_end(sizes: Any, bound: Any, size: Any, beyond: int = 0) -> None:
    if type(size) is int and isinstance(bound, live_scalars.LiveInt):
        sizes.symbols.note_end(bound, size - beyond)


CHECKS: dict[str, Callable[..., None]] = {
    "select": check_index,
    "narrow": check_range,
    "topk": check_count,
    "kthvalue": check_count,
    "split": check_parts,
    "select_scatter": check_index,
    "slice_scatter": check_slice,
}
