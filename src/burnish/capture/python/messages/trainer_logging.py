"""Logging calls of training frameworks: recorded as side effects, like `print`.

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)      # no break: called again, after the graph, on every run
        return loss

`LightningModule.log` takes a value and returns nothing. Its processing (averages, the progress bar, loggers) belongs to
the Trainer, and nothing in the step depends on it. So it is not interpreted: the call is recorded with its arguments as
they were at that moment. It becomes a plain call in three cases: a value with state of its own (a metric object, under
a Trainer), an error (which belongs at its place), and a step that reads logged values back.

Which functions these are is the knowledge of ``integrations``: see ``lightning_logging``.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ... import breaks
from ...interpreter.frames import MISSING, Raised
from ...numbers.live_scalars import plain_of
from ...segments.effects import Effect
from .. import builtin_functions

FRAMEWORKS: list[Callable[[], bool]] = []
"""Each registers the functions of a framework once it is loaded, and returns whether it has (``integrations``)."""
HAVE_BEEN_READ = ("logged values", "read")


def meet() -> None:
    """Register the frameworks loaded since the last call."""
    for is_registered in [*FRAMEWORKS]:
        if is_registered():
            FRAMEWORKS.remove(is_registered)


def register(log: Any, readers: Iterable[Any]) -> None:
    """``log`` takes a value and returns nothing; ``readers`` return what has been logged."""
    builtin_functions.PYTHON_FUNCTIONS[log] = lambda m, args, kwargs: _log(m, log, args, kwargs)
    builtin_functions.PYTHON_FUNCTIONS.update(dict.fromkeys(readers, _read))


def _log(m: Any, log: Any, args: tuple, kwargs: dict) -> Any:
    value = args[2] if len(args) > 2 else kwargs.get("value")
    if not issubclass(type(value), (torch.Tensor, numbers.Number)):
        if not _is_metric(value) or not _has_trainer(*args):
            return MISSING
        # Interpreted, it would break at a line of Lightning's, for a reason that says nothing about the program.
        m.stop(breaks.OPAQUE_FUNCTION, f"{log.__qualname__} of an object: {type(value).__name__}")
    if HAVE_BEEN_READ in m.lookups:
        m.stop(breaks.OPAQUE_FUNCTION, f"{log.__qualname__} after logged values were read")
    try:
        m.plainly(log_value, log, *args, **kwargs)
    except Raised as raised:
        what = f"{log.__qualname__} raises {type(raised.error).__name__}"
    else:
        m.effects.append(Effect.of(m, log_value, (log, *args), kwargs))
        return None
    return m.stop(breaks.OPAQUE_FUNCTION, what)


def _is_metric(value: Any) -> bool:
    return getattr(sys.modules.get("torchmetrics"), "Metric", None) in type(value).__mro__


def _has_trainer(module: Any = None, *_: Any) -> bool:
    return issubclass(type(module), torch.nn.Module) and module.__dict__.get("_trainer") is not None


def _read(m: Any, args: tuple, kwargs: dict) -> Any:
    """Reading logged values: before the graph runs they lack the values that this segment logs."""
    if any(effect.function is log_value for effect in m.effects):
        m.stop(breaks.OPAQUE_FUNCTION, "reading logged values after logging")
    m.lookups[HAVE_BEEN_READ] = True
    return MISSING


def log_value(log: Any, *args: Any, **kwargs: Any) -> None:
    log(*map(plain_of, args), **{name: plain_of(value) for name, value in kwargs.items()})
