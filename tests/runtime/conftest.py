"""Each test starts with nothing compiled, and torch's own threads out of its way."""

import sys

import pytest
import torch

import burnish


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    burnish.reset()
    yield
    burnish.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def hasty():
    """Threads take turns a hundred times as often as usual, so that they meet everywhere."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(interval)
