"""Custom ``autograd.Function``s whose ``backward`` sees which of their outputs were used, for backends without Python.

    ctx.set_materialize_grads(False)            a gradient that backward is given is None if its output was not used

A compiler like AOTAutograd traces backward ahead, as if gradients flowed into every output of the graph. In eager they
flow into those that the program uses later. So the function is part of a graph only if one output of it has gradients:
then the compiler sees what eager sees. With more, the segment is dropped, and the next trace ends before the call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .. import writes_of_calls


class SeesUnused(NamedTuple):
    """A call of such a function in the trace."""

    why: str
    runs_in_backward: bool = False
    """Whether a backward pass in the same segment has to wait for it, as for a hook."""

    def why_not_kept(self, m: Any, rebuilder: Any, leaving: list[torch.Tensor]) -> str | None:
        """When the segment is closed. ``leaving``: the values that leave it."""
        if any(hook.runs_in_backward for hook in m.traced_hooks):
            return self.why  # a gradient hook of an unused output gets None
        written = {handle.key for handle in writes_of_calls.written_inputs(m.recorder)}
        given = [example for key, example in enumerate(m.recorder.examples) if key in written]
        learning = [x for x in (*leaving, *given) if isinstance(x, torch.Tensor) and x.requires_grad]
        return self.why if len({id(x) for x in learning}) > 1 else None


def can_be_checked(m: Any) -> bool:
    """Whether the outputs of the graph that is being traced are those that gradients flow into."""
    return m.capabilities.sees_unused_outputs and m.region is None and not m.recorder.groups
