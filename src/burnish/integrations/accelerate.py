"""Hugging Face Accelerate: a compilation plugin that uses Burnish.

    from burnish.integrations.accelerate import BurnishPlugin        # was: TorchDynamoPlugin

    accelerator = Accelerator(dynamo_plugin=BurnishPlugin(fullgraph=True, use_regional_compilation=True))
    model, optimizer = accelerator.prepare(model, optimizer)

Arguments and environment variables are those of `TorchDynamoPlugin`. The default backend "inductor" means Burnish.
"eager" and "aot_eager" run graphs captured by Burnish with those backends; "no" compiles nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from accelerate.utils import DynamoBackend, TorchDynamoPlugin

from ..backends.registry import list_backends
from ..errors import UserError
from .torch_compile import know_burnish, torch_arguments

BACKEND = "ACCELERATE_DYNAMO_BACKEND"


@dataclass
class BurnishPlugin(TorchDynamoPlugin):
    """``TorchDynamoPlugin`` with Burnish. Creating one makes ``torch.compile(backend="burnish")`` use Burnish."""

    def __post_init__(self) -> None:
        backend = os.environ.get(BACKEND, "inductor") if self.backend is None else self.backend
        if backend == "burnish":
            backend = "inductor"
        self.backend = backend  # type: ignore[assignment]
        super().__post_init__()
        if self.backend is not DynamoBackend.NO and self.backend.value.lower() not in list_backends():
            raise UserError(
                f"BurnishPlugin(backend={backend!r}): Burnish has no such backend. Leave it out, or take "
                f"TorchDynamoPlugin, whose backends these are."
            )
        know_burnish()

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments that Accelerate passes to torch.compile."""
        name = self.backend.value.lower()
        kwargs: dict[str, Any] = {
            "backend": "burnish" if name == "inductor" else name,
            "fullgraph": bool(self.fullgraph),
            "dynamic": self.dynamic,
            "options": self.options,
            # A mode excludes options, and a mode is always set: the environment's, or "default".
            "mode": None if self.options is not None and self.mode == "default" else self.mode,
        }
        if self.disable:
            kwargs["disable"] = True
        return torch_arguments(kwargs)
