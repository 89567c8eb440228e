"""Lightning's logging methods, whose calls capture records as side effects.

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)      # no break: the Trainer averages and shows it after the graph
        return loss

`LightningModule.log` hands a value to the Trainer and returns nothing. A metric object under a Trainer has state that
the Trainer reads and resets, so its call is a graph break. Other objects fail in Lightning's own code.

Nothing is imported here: capture looks up the definitions once Lightning is loaded.
"""

from __future__ import annotations

import numbers
import sys
from typing import Any

import torch

from ..capture.python.messages import effect_functions

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
READERS = ("callback_metrics", "logged_metrics", "progress_bar_metrics", "_results")


def why_not_recorded(module: Any = None, name: Any = None, value: Any = None, *_: Any, **__: Any) -> str | None:
    if issubclass(type(value), (torch.Tensor, numbers.Number)):
        return None
    if not _is_metric(value) or not _has_trainer(module):
        return ""
    # Interpreted, it would break at a line of Lightning's, for a reason that says nothing about the program.
    return f"of an object: {type(value).__name__}"


def _is_metric(value: Any) -> bool:
    return getattr(sys.modules.get("torchmetrics"), "Metric", None) in type(value).__mro__


def _has_trainer(module: Any) -> bool:
    return issubclass(type(module), torch.nn.Module) and module.__dict__.get("_trainer") is not None


for _package in PACKAGES:
    effect_functions.declare(
        effect_functions.EffectFunction(
            owner=(f"{_package}.core.module", "LightningModule"),
            method="log",
            readers_owner=(f"{_package}.trainer.trainer", "Trainer"),
            readers=READERS,
            why_not=why_not_recorded,
        )
    )
