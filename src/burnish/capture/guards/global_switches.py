"""Torch's global switches: restored to what they were when a segment or a tentative trace began.

    with torch.no_grad():        # a break in here: the graph before it ran with the switches of its start
        helper(x)

``tensor_metadata.global_state`` reads them, and guards compare them.
"""

from __future__ import annotations

import torch


def autocast_nesting() -> int:
    """How many autocast contexts are open. Their cache of casts is kept until the last one exits."""
    found = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return found


def restore_state(state: tuple, nesting: int | None = None) -> None:
    """Restore torch's global switches to an earlier result of ``global_state`` and ``autocast_nesting``."""
    if nesting is not None:
        for _ in range(nesting, autocast_nesting()):
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        for _ in range(autocast_nesting(), nesting):
            torch.autocast_increment_nesting()
    torch.set_grad_enabled(state[0])
    for device, enabled, dtype in (("cpu", state[5], state[6]), ("cuda", state[7], state[8])):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(state[9])
