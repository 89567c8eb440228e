"""Torch's global switches: restored to what they were when a segment or a tentative trace began.

    with torch.no_grad():        # a break in here: the graph before it ran with the switches of its start
        helper(x)

``tensor_metadata.global_state`` reads them, and guards compare them.
"""

from __future__ import annotations

from torch.autograd import forward_ad

from ...tensors.torch_state import TorchState


def restore_state(state: tuple, nesting: int | None = None) -> None:
    """Restore torch's global switches to an earlier result of ``global_state`` and ``autocast_nesting``."""
    TorchState(state[0], (state[5:7], state[7:9]), state[9], nesting).restore()


def leave_dual_levels() -> None:
    """Leave the levels of forward-mode differentiation. Traces begin outside of them."""
    while forward_ad._current_level >= 0:
        forward_ad.exit_dual_level()
