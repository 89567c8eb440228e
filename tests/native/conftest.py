"""Each test starts with nothing compiled."""

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
