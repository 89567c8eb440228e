"""Lightning's logging methods, which capture records as side effects, and the attributes that they read.

Nothing is imported here: the definitions are looked up once Lightning is loaded.
"""

from __future__ import annotations

import functools
import sys

from ..capture.python.messages import trainer_logging

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
READERS = ("callback_metrics", "logged_metrics", "progress_bar_metrics", "_results")


def is_registered(package: str) -> bool:
    module = getattr(sys.modules.get(f"{package}.core.module"), "LightningModule", None)
    trainer = getattr(sys.modules.get(f"{package}.trainer.trainer"), "Trainer", None)
    if module is None or trainer is None:
        return False
    readers = [getattr(vars(trainer).get(name), "fget", None) for name in READERS]
    trainer_logging.register(module.log, filter(None, readers))
    return True


trainer_logging.FRAMEWORKS += [functools.partial(is_registered, package) for package in PACKAGES]
