"""Each test starts with nothing compiled and the default stance, and finds threads out of its way."""

import pytest
import torch

import burnish


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, a test waits on whatever else the machine runs
    torch.manual_seed(0)
    burnish.reset()
    yield
    burnish.set_stance("default")
    burnish.reset()
    torch.set_num_threads(threads)
