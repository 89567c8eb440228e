"""Torch's records of operators, with samples to call them with (importing them takes seconds).

For each operator whose samples are asked for, torch looks through the stack for a unittest to name in an error, and for
each sample its random numbers are seeded with the stack kept for every kind of device: 50 ms and 3 ms, twice what a
check takes. There is no unittest here, so none is looked for; without a device only the CPU is seeded.
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

    common_utils.extract_test_fn = lambda: None
    if not torch.accelerator.is_available():
        common_utils.set_rng_seed = seed
    return op_db


def seed(number: int = 1234) -> None:
    """As torch's own, and the same numbers."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number)
