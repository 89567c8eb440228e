"""Sizes that a branch of `torch.cond` has read: the trace forgets its calls, but not what it took them for.

    def branch(x):
        windows = x.unfold(0, 4, 3)
        return windows.sum() * windows.shape[0]         (s0 - 1) // 3 is a number of the branch's graph

The segment serves sizes for which the calls of the branch, repeated without data, have results of these sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..engine.torch_call_records import Handle, TorchCall
from .meta_shape_replay import NotRepeatable, part_of, repeated, substitute_handles

if TYPE_CHECKING:
    from .dynamic_dimensions import SymbolicSizes


def keep_claims(sizes: SymbolicSizes, start: int, is_nested: bool) -> None:
    """The calls from `start` on are about to be forgotten: they are a graph of their own."""
    claims = [
        (handle, dim, known)
        for (call, _, dim), (handle, known) in sizes.claims.items()
        if isinstance(call, int) and call >= start
    ]
    if claims and is_nested:
        sizes.symbols.settle_all("a size of a result in a branch of a branch")
    elif claims:
        sizes.regions.append(RegionSizes(sizes.tracer.recorder.calls[start:], start, claims))


class RegionSizes:
    """The calls of a region, and the sizes of their results that the program has seen."""

    def __init__(self, calls: Sequence[TorchCall], start: int, claims: Sequence[tuple[Handle, int, Any]]):
        self.calls, self.start, self.claims = calls, start, claims

    def checked_by(self, number: Callable[[Any], Callable], follows: Any = None) -> Callable[..., None]:
        """A function of a point that raises NotRepeatable if the sizes are others. `number` makes one of a formula."""
        claims = [(handle, dim, number(known)) for handle, dim, known in self.claims]

        def check(value_of: Callable[[Handle], Any], point: Any, probe: Any) -> None:
            made: list[Any] = []

            def of(handle: Handle) -> Any:
                if isinstance(handle.call, int) and handle.call >= self.start:
                    return part_of(made[handle.call - self.start], handle.path)
                return value_of(handle)

            for call in self.calls:
                args, kwargs = substitute_handles(call.args, of), substitute_handles(call.kwargs, of)
                made.append(repeated(probe, call.target, args, kwargs))
            if any(of(handle).shape[dim] != size(point) for handle, dim, size in claims):
                raise NotRepeatable("a size in a branch follows another formula")

        return check
