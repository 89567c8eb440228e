"""Resets the random number generators.

`torch.manual_seed` keeps the stack for each kind of device that the process has not used: it reads the time of every
file in it, three times, which takes 3 ms in a test. Here it is only called where there is a device to seed.
"""

import functools

import torch


def seed(number: int) -> None:
    if has_device():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


@functools.cache
def has_device() -> bool:
    return torch.accelerator.is_available()
