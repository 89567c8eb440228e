"""Checkpointed regions: how a graph marks them, and how autograd is kept from saving what happens in there.

    recomputation = Recomputation(again)
    with recomputation.saving():
        y = model(x)                     # nothing is saved
    y.sum().backward()                   # again(is_done) runs the model once more

The rules are those of `torch.utils.checkpoint` without reentry: hooks take what autograd saves in the region and leave
an empty `Holder` in its place; the first one that is opened in a run of backward has the region run again, until as
much has been saved as then. torch's own code for that imports its compiler, so it is written here once more. Three use
it: capture for the run it watches, graphs that run eagerly, and the trace of the compiler, whose tensors have no data.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch


class Mark(NamedTuple):
    """What a node of a captured graph says of the region it belongs to, under the name `MARK` of its `meta`."""

    number: int
    draws: bool
    """Whether random numbers are drawn in the region."""


MARK = "burnish_region"
GIVEN = "burnish_given_to"
"""What a node's `meta` says of the regions whose function was given its value as an argument: their numbers."""


class Holder:
    """In the place of a tensor that autograd saved. `task` is the run of backward that `value` was computed for."""

    __slots__ = ("__weakref__", "task", "value")

    def __init__(self) -> None:
        self.task: int | None = None
        self.value: torch.Tensor | None = None


class Recomputation:
    """One run of a region. `again(is_done)` computes it once more and asks, after each step, whether that is enough."""

    def __init__(self, again: Callable[[Callable[[], bool]], None] | None = None):
        self.again = again
        self.holders: list[weakref.ref[Holder]] = []

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """While the region runs for the first time."""
        with hooks(self.pack, self.unpack):
            yield

    def pack(self, x: torch.Tensor) -> Holder:
        holder = Holder()
        self.holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: Holder) -> torch.Tensor:
        task = torch._C._current_graph_task_id()
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
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
    try:
        yield
    finally:
        torch._C._autograd._pop_saved_tensors_default_hooks()


class Switches:
    """What of torch's state decides how a region is computed: autocast. Backward may run under another one."""

    def __init__(self, kinds: Sequence[str] = ("cpu",)):
        self.kinds = kinds
        self.state = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
        self.caches = torch.is_autocast_cache_enabled()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind, (enabled, dtype) in zip(self.kinds, self.state, strict=True):
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.caches))
            yield
