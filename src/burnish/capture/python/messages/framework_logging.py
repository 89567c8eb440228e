"""Logging calls of training frameworks: recorded as side effects, like `print`.

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)      # no break: called again, after the graph, on every run
        return loss

`LightningModule.log` takes a value and returns nothing. Its processing (averages, the progress bar, loggers) belongs to
the Trainer, and nothing in the step depends on it. So it is not interpreted: the call is recorded with its arguments as
they were at that moment. It becomes a plain call in three cases: a value with state of its own (a metric object), an
error (which belongs at its place), and a step that reads logged values back.

Nothing is imported here: the definitions of a framework are looked up once it is loaded.
"""

from __future__ import annotations

import numbers
import sys
from typing import Any

import torch

from ... import breaks
from ...interpreter.frames import MISSING, Raised
from ...numbers.live_scalars import Live
from ...segments.effects import Effect
from .. import builtin_functions

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
READERS = ("callback_metrics", "logged_metrics", "progress_bar_metrics", "_results")
_known: set[str] = set()


def meet() -> None:
    """Register the frameworks loaded since the last call."""
    for package in PACKAGES:
        if package not in _known and f"{package}.trainer.trainer" in sys.modules:
            module = getattr(sys.modules.get(f"{package}.core.module"), "LightningModule", None)
            trainer = getattr(sys.modules[f"{package}.trainer.trainer"], "Trainer", None)
            if module is not None and trainer is not None:
                _known.add(package)
                _enter(module.log, trainer)


def _enter(log: Any, trainer: type) -> None:
    builtin_functions.PYTHON_FUNCTIONS[log] = lambda m, args, kwargs: _log(m, log, args, kwargs)
    for name in READERS:
        reader = getattr(vars(trainer).get(name), "fget", None)
        if reader is not None:
            builtin_functions.PYTHON_FUNCTIONS[reader] = _read


def _log(m: Any, log: Any, args: tuple, kwargs: dict) -> Any:
    value = args[2] if len(args) > 2 else kwargs.get("value")
    if not isinstance(value, (torch.Tensor, numbers.Number)):
        return MISSING
    if m.logged_values_read:
        m.stop(breaks.OPAQUE_CALL, f"{log.__qualname__} after logged values were read")
    try:
        m.plainly(log_value, log, *args, **kwargs)
    except Raised as raised:
        what = f"{log.__qualname__} raises {type(raised.error).__name__}"
    else:
        m.effects.append(Effect.of(m, log_value, (log, *args), kwargs))
        return None
    return m.stop(breaks.OPAQUE_CALL, what)


def _read(m: Any, args: tuple, kwargs: dict) -> Any:
    """Reading logged values: before the graph runs they lack the values that this segment logs."""
    if any(effect.function is log_value for effect in m.effects):
        m.stop(breaks.OPAQUE_CALL, "reading logged values after logging")
    m.logged_values_read = True
    return MISSING


def log_value(log: Any, *args: Any, **kwargs: Any) -> None:
    log(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Live) else value
