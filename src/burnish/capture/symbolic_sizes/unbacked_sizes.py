"""Unbacked sizes: sizes of results that depend on data, in a graph that may not end there (``fullgraph=True``).

    y = x[x > 0]                            gt = x > 0;  getitem = x[gt]          f32[n]
    y.shape[0]                              size = getitem.size(0)                a graph number
    y.sum()                                 sum_1 = getitem.sum()                 f32[]: its shape is known

The calls are recorded like any other. Python must not take a size of this run for a constant. So the shape of each
result that it asks for is found by replay: the calls are repeated without data (``meta_shape_replay``), with other
sizes in place of those that depend on data. A size that stays the same is a constant; any other is read by a node of
the graph. A shape that cannot be determined has only such sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import breaks
from ..engine.torch_call_records import Handle, TorchCall
from ..guards.tensor_metadata import TENSOR_TYPES
from ..numbers import graph_numbers, live_scalars
from ..pytorch import torch_call_roles
from .unbacked_replay import (
    OF_NO_OTHER_SIZE,
    TAKE_SIZES,
    WITH_MASK,
    ObservedSizes,
    UnbackedReplay,
    UncomputedCall,
    is_mask,
    parts_of,
)


def repeated_dim(args: tuple, kwargs: dict, tensor: torch.Tensor) -> int:
    return kwargs.get("dim", args[2] if len(args) > 2 else None) or 0


SIZED: dict[str, Callable[[tuple, dict, torch.Tensor], int]] = {
    **dict.fromkeys("nonzero argwhere masked_select where bincount".split(), lambda args, kwargs, tensor: 0),
    "one_hot": lambda args, kwargs, tensor: tensor.ndim - 1,
    "repeat_interleave": repeated_dim,
}
"""Calls whose results have one size that depends on data, and the dimension of that size."""

UNIQUE = ("unique", "unique_consecutive")

OF_OTHER_RANK = ("squeeze",)
"""Calls whose result may have another rank for another size."""


class UnbackedSizes:
    """The unbacked sizes of one trace."""

    def __init__(self, tracer: Any):
        self.tracer, self.recorder = tracer, tracer.recorder
        self.sources: dict[int, UncomputedCall] = {}
        """By call: those with a size that depends on data, and those that return a number."""
        self.has_sizes = False
        """Whether the graph contains such a size. Nothing needs to be asked otherwise."""
        self.read: dict[tuple[int, int], tuple[Any, Any]] = {}
        """The graph numbers of sizes, by the tensor's id and the dimension, with the tensor's handle."""
        self.reads: set[int] = set()
        """The calls that read a size."""
        self.replay = UnbackedReplay(self.recorder, self.sources)
        self.dims: list[tuple[int, ...]] | None = None
        """Of the results of a library operator that is being recorded, the dimensions with a size from data."""

    # ---- calls

    def takes(self, func: Any, args: tuple, kwargs: dict, result: Any) -> bool:
        """Whether a call with a result of unknown size is recorded."""
        if not may_keep_sizes(self.tracer) or "out" in kwargs:
            return False
        if isinstance(func, torch_call_roles.OF_LIBRARIES):
            from .custom_operator_dynamic_sizes import sizes_from_data  # few operators have such results

            self.dims = sizes_from_data(func, args, kwargs, result)
            return self.dims is not None
        self.dims, name = None, torch_call_roles.name_of(func)
        return name in SIZED or name in UNIQUE or name in WITH_MASK and not has_mask_of_rank_0(args[1])

    def note_call(self, call: int, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """A call with a result of unknown size has been recorded."""
        self.has_sizes = True
        recorded = self.recorder.calls[call]
        given = [id(handle) for handle in self.replay.given_to(call)]
        parts = result if isinstance(result, (tuple, list)) else (result,)
        of_parts = self.dims or [unknown_dims(name, args, kwargs, k, part) for k, part in enumerate(parts)]
        observed: Any = tuple(
            (tuple(part.shape), dims, part.dtype, part.device) for dims, part in zip(of_parts, parts, strict=True)
        )
        if name in WITH_MASK:
            masks = [part for part in parts_of(args[1]) if is_mask(part)]
            given, observed = [id(self.recorder.handle_of(masks[0]) or masks[0])], int(masks[0].count_nonzero())
        self.sources[call] = UncomputedCall(
            (recorded.target, tuple(given)), name, observed, isinstance(result, (tuple, list))
        )

    def note_number(self, handle: Handle, value: Any) -> None:
        """A number has been read from a tensor."""
        self.sources[handle.call] = UncomputedCall(("number", handle.call), "item", value, False)  # type: ignore[index]

    def forget(self, call: int) -> None:
        """The calls from this one on have been undone."""
        self.sources = {at: source for at, source in self.sources.items() if at < call}
        self.read = {key: entry for key, entry in self.read.items() if entry[1].expression.handle.call < call}
        self.reads = {at for at in self.reads if at < call}
        self.replay = UnbackedReplay(self.recorder, self.sources)

    def repeatable(self, call: int) -> TorchCall:
        """A call, or what is repeated without data in its place."""
        made, source = self.recorder.calls[call], self.sources.get(call)
        if source is None or source.name not in (*WITH_MASK, *OF_NO_OTHER_SIZE):
            return made
        return made._replace(target=ObservedSizes(source))

    # ---- shapes

    def asked(self, name: str, tensor: Any, arguments: Sequence[Any]) -> Any:
        """The result of ``x.size(0)`` and similar queries, or None if the plain result is correct."""
        shape = self.shape_of(tensor)
        found = None if shape is None else size_query(name, shape, arguments)
        if found is None and shape is not None:
            self.refuse(f"{name} of a tensor whose size depends on the data")
        return found

    def refuse(self, what: str) -> Any:
        return self.tracer.stop(breaks.DATA_SHAPE, what)

    def check_first(self, tensor: Any) -> None:
        """The tensor is about to be split along its first dimension."""
        if self.has_unknown_size(tensor) and isinstance(self.shape_of(tensor)[0], live_scalars.Live):  # type: ignore
            self.refuse("iteration over a tensor whose size depends on the data")

    def is_unknown(self, handle: Handle) -> bool:
        """Whether the value depends on a call with a result of unknown size, as far as calls tell."""
        stack, seen = [handle.call], set()
        while stack:
            at = stack.pop()
            if at is None or at in seen:
                continue
            seen.add(at)
            if at in self.sources:
                return True
            stack += [part.call for part in self.replay.given_to(at)]
        return False

    def shape_of(self, tensor: torch.Tensor) -> tuple[Any, ...] | None:
        """The shape with graph numbers in it; None if all sizes are known."""
        if not self.has_sizes or tensor.ndim == 0 or type(tensor) not in TENSOR_TYPES:
            return None
        handle = self.recorder.handle_of(tensor)
        if handle is None or handle.call is None or not self.is_unknown(handle):
            return None
        unknown = self.replay.unknown_dims(handle, tensor)
        if not unknown:
            return None
        symbolic = self.tracer.symbolic_sizes
        sizes = symbolic is not None and symbolic.shape_of(tensor) or tensor.shape
        return tuple(self.size(tensor, handle, k) if k in unknown else size for k, size in enumerate(sizes))

    def size(self, tensor: torch.Tensor, handle: Handle, dim: int) -> Any:
        found = self.read.get((id(tensor), dim))
        if found is not None and found[0] is handle:
            return found[1]
        number = self.recorder.number("size", (tensor, dim))
        self.reads.add(number.call)
        self.tracer.recorder.seen += 1
        made = live_scalars.make(tensor.shape[dim], graph_numbers.GraphNumber(number), self.tracer)
        self.read[id(tensor), dim] = handle, made
        return made

    def has_unknown_size(self, tensor: Any) -> bool:
        """Whether a size of the tensor, or of the call's result, is unknown. Nothing is recorded."""
        if not self.has_sizes or type(tensor) not in TENSOR_TYPES or tensor.ndim == 0:
            return False
        handle = self.recorder.handle_of(tensor)
        return (
            handle is not None
            and handle.call is not None
            and self.is_unknown(handle)
            and bool(self.replay.unknown_dims(handle, tensor))
        )

    def why_not_structure(self, name: str, call: int, result: Any) -> str | None:
        """Why the number of results, or their rank, may be another one for other sizes."""
        if not self.has_sizes or call in self.sources:
            return None
        if name in OF_OTHER_RANK or type(result) in (tuple, list):
            handle = Handle(call)
            if self.is_unknown(handle) and (
                not self.replay.has_one_structure(handle) or self.splits_unknown_size(name, call)
            ):
                return "what it returns depends on a size that depends on the data"
        return None

    def splits_unknown_size(self, name: str, call: int) -> bool:
        """Whether the number of results depends on an unknown size."""
        if name in torch_call_roles.OTHER_SIZE_DEPENDENT_SPLITS:
            return True
        position = torch_call_roles.SIZE_DEPENDENT_SPLITS.get(name)
        if position is None:
            return False
        made = self.recorder.calls[call]
        dim = made.kwargs.get("dim", made.args[position] if len(made.args) > position else 0)
        values = self.replay.values(made.args[0]) if made.args and isinstance(made.args[0], Handle) else None
        return values is None or type(dim) is not int or len({value.shape[dim] for value in values}) > 1

    def calls_of_unknown_size(self) -> set[int]:
        """The recorded calls with results of unknown size, for the compiler."""
        if not self.has_sizes:
            return set()
        found = set()
        for at in range(len(self.recorder.calls)):
            handle = Handle(at)
            is_source = at in self.sources and self.sources[at].name != "item"
            if (
                is_source
                or self.replay.is_of_computed_size(at)
                or self.is_unknown(handle)
                and self.replay.may_have_unknown_size(handle)
            ):
                found.add(at)
        return found


def may_keep_sizes(m: Any) -> bool:
    """Whether sizes from data may be part of the graph here."""
    return m.options.keeps_sizes and m.options.keeps_data and m.region is None


def takes_sizes(m: Any, name: str) -> bool:
    """Whether a call takes graph numbers as sizes and positions."""
    return name in TAKE_SIZES and may_keep_sizes(m)


def unknown_dims(name: str, args: tuple, kwargs: dict, position: int, tensor: torch.Tensor) -> tuple[int, ...]:
    if name in WITH_MASK:
        return ()
    if name not in UNIQUE:
        return (SIZED[name](args, kwargs, tensor),)
    dim = kwargs.get("dim")
    is_inverse = position == 1 and (kwargs.get("return_inverse") or name == "unique" and args[2:3] == (True,))
    return (dim or 0,) if position == 0 else () if is_inverse else (0,)


def has_mask_of_rank_0(key: Any) -> bool:
    return any(isinstance(part, (bool, tuple, list)) or is_mask(part) and part.ndim == 0 for part in parts_of(key))


def size_query(name: str, shape: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """The result of ``x.size(0)`` and similar queries for a tensor of this shape; None for other queries."""
    if name in ("shape", "size") and not arguments:
        return torch.Size(shape)
    if name == "size" and type(arguments[0]) is int and -len(shape) <= arguments[0] < len(shape):
        return shape[arguments[0]]
    if name == "__len__":
        return shape[0]
    if name in ("numel", "nelement"):
        total: Any = 1
        for size in shape:
            total = size * total if isinstance(size, live_scalars.LiveInt) else total * size
        return total
    return None
