"""Repeated blocks: compiled blocks of a model as calls in the surrounding graph (regional compilation).

    for layer in self.layers:            layer    = layer(embed, cos, sin)
        x = layer(x, mask, positions) =>  layer_1  = layer_1(layer, cos, sin)
                                          ...

A block of a model compiled by regions has a segment of its own. When the code around the blocks is captured, such a
block is one node: it runs the segment's check with the block and this run's tensors, and then its graph. The block's
reads are guarded there, so the surrounding graph only depends on its results.

That is correct for a segment that only computes. If the check fails in a later call (a hook was put on the block, say),
the node raises before anything of that block has run, and the model runs as plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ....errors import BurnishError
from ....runtime.segment_records import Segment
from ...guards.tensor_metadata import TENSOR_TYPES
from ...python.attributes.attribute_reads import load


class BlockChanged(BurnishError):
    """The compiled code of a block no longer fits the block."""


class BlockCall:
    """A block with its compiled segment, as a function of tensors."""

    stands_alone = True

    def __init__(self, block: torch.nn.Module, segment: Segment, slots_of: Callable[[Any, tuple], list]):
        self.block, self.segment, self.slots_of = block, segment, slots_of
        self.__name__ = self.__qualname__ = type(block).__name__
        self.__module__ = __name__

    def __call__(self, *tensors: torch.Tensor) -> Any:
        segment = self.segment
        found = segment.check(self.slots_of(self.block, tensors))
        if found is None:
            raise BlockChanged(f"a {self.__name__} is not what it was when the code around it was captured")
        inputs, values = found
        return segment.finish(values, segment.graph(*inputs))  # type: ignore[misc]


def is_block(region: Any) -> bool:
    """Whether the compiled form of a module (``_compiled_call_impl``) is one program for all equal modules."""
    return getattr(region, "is_repeated_block", False) is True


def call_block(m: Any, block: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
    """Call a block while the code around it is traced. The graph ends if the call cannot be a node."""
    region, name = load(m, block, "_compiled_call_impl"), type(block).__name__
    m.heap.guard("is", m.heap.origin_of(region).source, region)
    structure = Structure(m)
    text = structure.text((args, kwargs))
    if text is None:
        m.stop(None, f"a {name} is given something else than tensors and constants")
    slots_of = slots_maker(text)
    segment = next(
        (
            each
            for each in region.__burnish_program__.entry.segments
            if each.check(slots_of(block, tuple(structure.tensors))) is not None
        ),
        None,
    )
    if segment is None:
        m.stop(None, f"a {name} is not compiled for what it is given")
    why = why_no_node(segment)
    if why is not None:
        m.stop(None, f"a {name} {why}")
    for value in (*args, *kwargs.values()):
        m.heap.expose(value)
    call = BlockCall(block, segment, slots_of)
    answer = call(*structure.tensors)
    if shares_memory(answer, structure.tensors):
        m.late(None, f"a {name} returns memory that it was given", answer)
    m.recorder.record(call, tuple(structure.tensors), {}, answer, live_allowed=False)
    return answer


def why_no_node(segment: Segment) -> str | None:
    if segment.leads_to is not None:
        return "has a graph break"
    if segment.graph is None:
        return "has no graph"
    if segment.has_effects or segment.writes_inputs or segment.changes_autocast or segment.reruns_watched:
        return "does more than compute"
    return None


def shares_memory(answer: Any, tensors: list[torch.Tensor]) -> bool:
    given = {x.untyped_storage().data_ptr() for x in tensors}
    parts = answer if isinstance(answer, (tuple, list)) else (answer,)
    return any(type(part) is not torch.Tensor or part.untyped_storage().data_ptr() in given for part in parts)


def show(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape)


show.stands_alone = True  # type: ignore[attr-defined]


class Structure:
    """The arguments of a call, as the text of an expression in which tensors have numbers."""

    def __init__(self, m: Any) -> None:
        self.m = m
        self.tensors: list[torch.Tensor] = []
        self.numbers: dict[int, int] = {}

    def shown(self, value: torch.Tensor) -> torch.Tensor:
        """A block was compiled for a view. Compiled code around it may return the same tensor without a view."""
        made = show(value)
        self.m.recorder.record(show, (value,), {}, made, live_allowed=False)
        self.m.views_of_blocks.update({id(value): made, id(made): made})
        return made

    def text(self, value: Any) -> str | None:
        kind = type(value)
        if kind in TENSOR_TYPES:
            value = self.m.views_of_blocks.get(id(value), value)
            if value._is_view() and id(value) not in self.m.views_of_blocks:
                value = self.shown(value)
            at = self.numbers.get(id(value))
            if at is None:
                at = self.numbers[id(value)] = len(self.tensors)
                self.tensors.append(value)
            return f"t[{at}]"
        if kind in (bool, int, str, type(None)) or kind is float and math.isfinite(value):
            return repr(value)
        if kind is tuple or kind is list:
            parts = [self.text(part) for part in value]
            inside = "".join(f"{part}, " for part in parts)
            return None if None in parts else f"({inside})" if kind is tuple else f"[{inside}]"
        if kind is dict and all(type(key) is str for key in value):
            entries = [(key, self.text(part)) for key, part in value.items()]
            return (
                None
                if any(part is None for _, part in entries)
                else f"{{{', '.join(f'{key!r}: {part}' for key, part in entries)}}}"
            )
        return None


_made: dict[str, Callable[[Any, tuple], list]] = {}


def slots_maker(text: str) -> Callable[[Any, tuple], list]:
    """One function for all blocks with equal calls: less memory to fetch in a call."""
    made = _made.get(text)
    if made is None:
        made = _made[text] = eval(f"lambda block, t: [block, *{text}]")
    return made
