"""Activation checkpointing: marks of checkpointed regions, and saved-tensor hooks that recompute instead of saving.

    recomputation = Recomputation(again)
    with recomputation.saving():
        y = model(x)                     # nothing is saved
    y.sum().backward()                   # again(is_done) runs the model a second time

The rules are those of non-reentrant `torch.utils.checkpoint`, whose code imports torch's compiler. Hooks replace each
tensor that autograd saves in the region by an empty `Holder`. The first holder that a backward unpacks reruns the
region until as many tensors were saved as in forward. Users are capture (for the run that it observes), graphs that run
in eager, and the compiler's trace, whose tensors have no data.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from ..foundation.torch_private import (
    current_graph_task_id,
    pop_saved_tensors_default_hooks,
    push_saved_tensors_default_hooks,
)


class Mark(NamedTuple):
    """The region that a node of a captured graph belongs to: the entry `MARK` of its `meta`."""

    number: int
    draws: bool
    """Whether random numbers are drawn in the region."""


MARK = "burnish_region"
GIVEN = "burnish_given_to"
"""The entry of a node's `meta` with the numbers of the regions that take its value as an argument."""


class Holder:
    """The placeholder for a tensor that autograd saved. `task` is the backward run that `value` was recomputed for."""

    __slots__ = ("__weakref__", "task", "value")

    def __init__(self) -> None:
        self.task: int | None = None
        self.value: torch.Tensor | None = None


class Recomputation:
    """One run of a region. `again(is_done)` recomputes it and stops after the step at which `is_done` returns True."""

    def __init__(self, again: Callable[[Callable[[], bool]], None] | None = None):
        self.again = again
        self.holders: list[weakref.ref[Holder]] = []

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Wraps the first run of the region."""
        with hooks(self.pack, self.unpack):
            yield

    def pack(self, x: torch.Tensor) -> Holder:
        holder = Holder()
        self.holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: Holder) -> torch.Tensor:
        task = current_graph_task_id()
        if holder.value is None or holder.task != task:
            self.run_again(task, holder)
        value, holder.value = holder.value, None
        assert value is not None
        return value

    def run_again(self, task: int, wanted: Holder) -> None:
        assert self.again is not None
        count, end = 0, len(self.holders)

        def pack(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            x = x.detach() if x.requires_grad else x
            holder = self.holders[count]() if count < end else None
            count += 1
            if holder is not None and (holder is wanted or holder.task != task):
                holder.task, holder.value = task, x
            return x

        with hooks(pack, unchanged), torch.enable_grad():
            self.again(lambda: count >= end)
        if wanted.value is None:
            raise RuntimeError("a checkpointed part of the program saved fewer tensors when it was computed again")


def unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


@contextlib.contextmanager
def hooks(pack: Callable, unpack: Callable) -> Iterator[None]:
    push_saved_tensors_default_hooks(pack, unpack)
    try:
        yield
    finally:
        pop_saved_tensors_default_hooks()


class AutocastState:
    """The autocast state of a region's first run. The recomputation restores it: backward may run under another."""

    def __init__(self, kinds: Sequence[str] = ("cpu",)):
        self.kinds = kinds
        self.state = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
        self.caches = torch.is_autocast_cache_enabled()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind, (enabled, dtype) in zip(self.kinds, self.state, strict=True):
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.caches))
            yield
