"""Torch's records of operators, with samples of their arguments (importing them takes seconds).

For each operator's samples, torch searches the stack for a unittest to name in an error (50 ms), and for each sample it
seeds every kind of device, recording the stack (3 ms): twice the time of a check. There is no unittest here, so the
search is skipped; without a device only the CPU is seeded.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import torch


@functools.cache
def operator_records() -> list[Any]:
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    common_utils.extract_test_fn = core.extract_test_fn = lambda: None
    if not torch.accelerator.is_available():
        common_utils.set_rng_seed = seed
    return op_db


def seed(number: int = 1234) -> None:
    """Like torch's own, with the same numbers."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
