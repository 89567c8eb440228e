"""The attack on changed state, short and with fixed seeds; it detects state that is not guarded."""

import random

import pytest
import torch
from bench.attack import state
from bench.attack.state_changes import CHANGES


@pytest.mark.parametrize("number", range(12))
def test_changes_between_calls_are_seen(number):
    outcome = state.tried(state.drawn(random.Random(f"state {number}")))
    assert outcome.differences == []


def test_programs_run_compiled():
    plan = state.Plan("closure", 1, ("nothing", "cell", "global_number", "forward_hook"), torch.float64)
    assert state.tried(plan) == state.Outcome([], True)


def test_state_that_is_missed_is_a_difference(monkeypatch):
    changed = []

    def only_in_eager(world, pick):
        changed.append(world)
        if len(changed) == 1:
            world.model.gain += 1

    monkeypatch.setitem(CHANGES, "only_in_eager", only_in_eager)
    outcome = state.tried(state.Plan("module", 1, ("nothing", "only_in_eager"), torch.float64))
    assert outcome.differences and all(text.startswith("call 1: ") for text in outcome.differences)
