"""Resets the random number generators.

`torch.manual_seed` keeps the stack for each kind of device that the process has not used, to show it if the device does
not start. It reads the time of every file in it, three times, which takes longer than many a test: here no stacks are
kept. Even so it imports Dynamo, and is only called where there is a device to seed.
"""

import functools
from types import SimpleNamespace

import torch

for device in (torch.cuda, torch.xpu, torch.mtia):
    device.traceback = SimpleNamespace(format_stack=list)  # all that they use of it


def seed(number: int) -> None:
    if has_device():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


@functools.cache
def has_device() -> bool:
    return torch.accelerator.is_available()
