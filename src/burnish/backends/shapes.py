"""The shapes that the tensors of a graph would have, were its inputs of another size.

    shapes = Shapes()
    x = shapes.input(example, (65, 768), (1, 0))
    y = shapes.call("view", (x, 65, 12, 64), {})
    y.shape                                          (65, 12, 64)

Calls are made on tensors without data, as the compiler does when it traces a graph. Only shapes are of interest here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.untraceable import Untraceable
from ..tensors.strides import packed_stride


class Shapes:
    """For one choice of sizes."""

    def __init__(self) -> None:
        # The compiler is imported when somebody asks, not by `import burnish`.
        from ..lower.trace import Tracer

        self.tracer = Tracer()

    def input(self, example: torch.Tensor, shape: Sequence[int] | None = None, order: Sequence[int] = ()) -> Any:
        """A tensor like the example; or of another shape, its dimensions in this order, the fastest first."""
        if shape is not None:
            shape = tuple(shape)
            example = torch.empty_strided(
                shape, packed_stride(shape, order), dtype=example.dtype, device=example.device)
        return self.tracer.input(example.detach(), "input", False)

    def call(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Raises Untraceable where that cannot be told."""
        from ..lower.trace import plain_tensors, tracing, why_not_called

        why = None if isinstance(target, str) else why_not_called(target)
        if why is not None:
            raise Untraceable(why)  # the user's code is not run once more
        with tracing, plain_tensors(), torch.no_grad():
            torch._C._push_on_torch_dispatch_stack(self.tracer)
            try:
                if isinstance(target, str):
                    return getattr(args[0], target)(*args[1:], **kwargs)
                return target(*args, **kwargs)
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
                raise Untraceable(f"{target} cannot be traced: {error}") from error
            finally:
                torch._C._pop_torch_dispatch_stack(None)
