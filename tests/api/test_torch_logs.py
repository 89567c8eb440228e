"""TORCH_LOGS: the switches of torch's compiler log show what Burnish does, while it stands in for the compiler."""

import logging
import os
import subprocess
import sys

import pytest
import torch

import burnish
from burnish import events
from burnish.integrations import torch_logs


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def logged():
    handlers = {name: Lines() for names in torch_logs.ARTIFACTS.values() for name in names}
    for name, handler in handlers.items():
        torch_logs.logger_of(name).addHandler(handler)
    yield handlers
    for name, handler in handlers.items():
        torch_logs.logger_of(name).removeHandler(handler)
    torch._logging.set_logs()


def run():
    def branches(x):
        return x.sin() if x.sum() > 0 else x.cos()

    compiled = torch.compile(branches)
    compiled(torch.ones(3))
    compiled(torch.ones(3).double())


def texts(logged):
    return {name: "\n".join(handler.lines) for name, handler in logged.items() if handler.lines}


def test_set_logs_switches_on_and_off(logged):
    with burnish.install(default=True):
        run()
        assert texts(logged) == {}
        torch._logging.set_logs(graph_breaks=True, recompiles=True)
        run()
        found = texts(logged)
        assert set(found) == {"graph_breaks", "recompiles"}
        assert "B101" in found["graph_breaks"] and "x.sin() if x.sum() > 0" in found["graph_breaks"]
        assert "torch.float64" in found["recompiles"]
        torch._logging.set_logs()
        run()
        assert texts(logged) == found


def test_graphs_are_shown_as_code(logged):
    with burnish.install(default=True):
        torch._logging.set_logs(graph_code=True)
        run()
    assert ".sin()" in texts(logged)["graph_code"] and "def forward(self" in texts(logged)["graph_code"]


def test_nothing_is_listened_to_without_a_switch_or_without_install(logged):
    assert not events.is_watched("graph")
    with burnish.install(default=True):
        assert not events.is_watched("guards.missed")
        torch._logging.set_logs(recompiles=True)
        assert events.is_watched("guards.missed") and not events.is_watched("graph")
    assert not events.is_watched("guards.missed")
    torch._logging.set_logs(graph_code=True)
    assert not events.is_watched("graph")


def test_the_environment_switches_it_on():
    program = """
import sys
import torch
import burnish

burnish.install(default=True)
torch.compile(lambda x: x.sin() if x.sum() > 0 else x)(torch.ones(3))
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_LOGS": "graph_breaks"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[__graph_breaks]" in done.stderr and "B101" in done.stderr
