"""Checks the outputs of a custom backend's function the first time it runs.

    def backend(gm, example_inputs):
        return lambda *inputs: gm.forward(*inputs)[0]      # one tensor, where the graph has a tuple of outputs

Capture takes the results of the first call from the traced run, so a graph first runs in the second call. Wrong outputs
would cause an error in our own code, or wrong values. After a successful check, segments call the compiled function
directly, so later runs cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import BackendError
from ..runtime.segment_records import SegmentsToUpdate

OUTPUTS = (torch.Tensor, int, float, complex, type(None), torch._C._InferenceMode)


class FirstRun:
    """Wraps a compiled graph until its outputs are checked."""

    def __init__(self, backend: str, compiled: Callable[..., Any], count: int):
        self.backend, self.compiled, self.count = backend, compiled, count
        self.is_checked = False
        self.holders = SegmentsToUpdate()

    def __call__(self, *inputs: Any) -> Any:
        made = self.compiled(*inputs)
        if not self.is_checked:
            why = why_not_outputs(made, self.count)
            if why is not None:
                raise BackendError(
                    self.backend,
                    f'The function that the backend "{self.backend}" returned for a graph gave {why}.\n'
                    f"What to do: let it return a tuple with one value for each output of the graph "
                    f"({self.count} here), in their order, as `gm.forward` does.",
                )
            self.is_checked = True
            self.holders.hand_over(self, self.compiled)
        return made


def count_outputs(gm: GraphModule) -> int | None:
    """The number of outputs; None if the graph does not return a tuple, as other libraries' graphs may."""
    outputs = next((node.args[0] for node in reversed(gm.graph.nodes) if node.op == "output"), None)
    return len(outputs) if isinstance(outputs, (tuple, list)) else None


def why_not_outputs(made: Any, count: int) -> str | None:
    if not isinstance(made, (tuple, list)):
        return f"a {type(made).__name__}, which is not a tuple"
    if len(made) != count:
        return f"{len(made)} values, and the graph has {count} outputs"
    others = [(k, x) for k, x in enumerate(made) if not isinstance(x, OUTPUTS)]
    return f"a {type(others[0][1]).__name__} as output {others[0][0]}, which is not a tensor" if others else None
