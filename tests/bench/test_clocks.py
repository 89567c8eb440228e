"""What a clock measures: on a GPU the time that the user waits, for launches or kernels, whichever is slower."""

import pytest
import torch
from bench.clocks import EventClock, WallClock, clock_for
from bench.contestants import Contestant
from bench.job import Job
from bench.models import MODELS
from bench.side_by_side import SideBySide
from bench.steady import block, take_turns
from torch import nn

from bench import clocks

from .simulated_gpu_queue import Queue


@pytest.fixture
def gpu(monkeypatch):
    queue = Queue()
    queue.instead_of_cuda(monkeypatch)
    return queue


def test_kernels_count_where_they_are_slower_than_their_launches(gpu):
    clock = EventClock("cuda", gpu.now)

    def call():
        for _ in range(10):
            gpu.launch(cpu=1e-6, kernel=1e-3)

    assert clock.sample(call) == pytest.approx(1e-6 + 10e-3)


def test_launches_count_where_they_are_slower_than_the_kernels(gpu):
    clock = EventClock("cuda", gpu.now)

    def call():
        for _ in range(10):
            gpu.launch(cpu=1e-4, kernel=1e-6)

    assert clock.sample(call) == pytest.approx(10e-4 + 1e-6)


def test_earlier_queued_work_does_not_count(gpu):
    clock = EventClock("cuda", gpu.now)
    gpu.launch(cpu=0, kernel=5.0)
    assert clock.sample(lambda: gpu.launch(cpu=1e-6, kernel=1e-3)) == pytest.approx(1e-3 + 1e-6)


def test_short_calls_have_events_of_their_own_on_a_gpu_alone(gpu):
    assert EventClock("cuda", gpu.now).repeats(1e-6) == 1
    assert WallClock().repeats(1e-6) == 200


def test_blocks_on_a_gpu_take_the_events_time(gpu):
    blocks = take_turns(
        {"eager": lambda: gpu.launch(1e-6, 2e-3), "burnish": lambda: gpu.launch(1e-6, 1e-3)},
        rounds=2,
        seconds=0.01,
        clock=EventClock("cuda", gpu.now),
    )
    assert blocks["eager"] == pytest.approx([2e-3 + 1e-6] * 2) and blocks["burnish"] == pytest.approx([1e-3 + 1e-6] * 2)


def test_block_is_over_when_its_seconds_are(gpu):
    log = []

    def call():
        log.append(gpu.cpu)
        gpu.launch(1e-3, 1e-3)

    block(call, 0.1, EventClock("cuda", gpu.now))
    assert 50 <= len(log) <= 54


def test_clock_is_the_devices(gpu):
    assert type(clock_for("cpu")) is WallClock and type(clock_for("cuda:1")) is EventClock
    clocks.wait("cpu")
    assert gpu.waits == 0
    clocks.wait("cuda")
    assert gpu.waits == 1


def test_model_is_timed_by_the_clock_of_its_device(gpu, monkeypatch, tmp_path):
    """The whole of a row, on tensors that are on the CPU, by a clock that knows a GPU's time alone."""

    class Slow(nn.Module):
        def forward(self, x):
            gpu.launch(cpu=1e-5, kernel=4e-3)
            return x + 1

    monkeypatch.setitem(MODELS, "slow", lambda times=1: (Slow(), (torch.zeros(2),), {}))
    clock = EventClock("cuda", gpu.now)
    job = Job("steady", ["eager"], str(tmp_path), model="slow", rounds=2, seconds=0.02)
    row = SideBySide(job, lambda message: None, clock).row()
    assert row.results["eager"].seconds == pytest.approx(4e-3 + 1e-5)


def test_gpu_that_refuses_everything_ends_the_process_of_all(gpu, monkeypatch, tmp_path):
    """The last message names the contestant, which is then left out of the next attempt."""

    class Breaks(Contestant):
        def compile(self, fn, args, kwargs):
            raise RuntimeError("an illegal memory access")

    def refuse(device):
        raise RuntimeError("the GPU refuses")

    monkeypatch.setattr("bench.contestants.kinds", lambda: {"eager": Contestant, "breaks": Breaks, "late": Contestant})
    monkeypatch.setitem(MODELS, "small", lambda times=1: (nn.Linear(2, 2), (torch.zeros(1, 2),), {}))
    messages = []
    job = Job("steady", ["eager", "breaks", "late"], str(tmp_path), model="small", rounds=1, seconds=0.01)
    row = SideBySide(job, messages.append, WallClock()).row()
    assert row.results["breaks"].why == "RuntimeError: an illegal memory access" and row.results["late"].ratio
    monkeypatch.setattr("bench.side_by_side.wait", refuse)
    messages.clear()
    with pytest.raises(RuntimeError, match="refuses"):
        SideBySide(job, messages.append, WallClock()).row()
    assert messages[-1]["contestant"] == "breaks"
