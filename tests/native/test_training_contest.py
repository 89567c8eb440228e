"""The contest in training, under a clock that only the players move."""

import pytest
import torch

from burnish.concurrency import waits_for_cores
from burnish.runtime.contest.training_contest import ROUNDS, WARM_CALLS, TrainingContest


@pytest.fixture(autouse=True)
def idle_cores(monkeypatch):
    monkeypatch.setattr(waits_for_cores, "seconds_waited", lambda: 0.0)


class Match:
    def __init__(self, compiled, eager):
        self.time, self.ran = 0.0, []
        self.seconds = {"compiled": compiled, "eager": eager}
        self.contest = TrainingContest(
            self.player("compiled"), self.player("eager"), "a graph", clock=lambda: self.time
        )

    def spend(self, name, call):
        seconds = self.seconds[name]
        self.time += (seconds(call) if callable(seconds) else seconds) / 2

    def player(self, name):
        def play(x):
            call = len(self.ran)
            self.ran.append(name)
            self.spend(name, call)
            out = x * 2
            out.grad_fn.register_hook(lambda *_: self.spend(name, call))
            return (out,)

        return play

    def play(self, calls=WARM_CALLS + 2 * ROUNDS + 6):
        for _ in range(calls):
            x = torch.ones(2, requires_grad=True)
            self.contest(x)[0].sum().backward()
        return self

    @property
    def kept(self):
        assert len(set(self.ran[-3:])) == 1 and self.contest.decided is not None
        return self.ran[-1]


def test_two_calls_of_eager_are_enough_where_the_difference_is_clear():
    match = Match(1.0, 2.1).play()
    assert match.kept == "compiled" and match.ran.count("eager") == 2


@pytest.mark.parametrize("busy,kept", [("eager", "eager"), ("compiled", "compiled"), ("", "compiled")])
def test_calls_of_eager_that_waited_for_a_core_decide_nothing_early(monkeypatch, busy, kept):
    """Eager looks three times as slow as it is in two calls, while other processes use the cores."""
    match = Match(1.2, lambda n: 3.0 if match.ran.count("eager") <= 2 else 1.0)
    waited = {"eager": 0.0, "compiled": 0.0, "": 0.0}
    usual = match.spend

    def spend(name, call):
        usual(name, call)
        waited[name] += 0.5

    match.spend = spend
    monkeypatch.setattr(waits_for_cores, "seconds_waited", lambda: waited[busy])
    assert match.play().kept == kept


@pytest.mark.parametrize("skips", [{2, 3}, {3}, {4}, {5}])
def test_calls_without_a_backward_decide_nothing_early(skips):
    match = Match(1.0, 3.0)
    for call in range(WARM_CALLS + 2 * ROUNDS):
        out = match.contest(torch.ones(2, requires_grad=True))[0]
        if call not in skips:
            out.sum().backward()
    assert match.ran.count("eager") == ROUNDS


def test_short_calls_decide_nothing_early():
    match = Match(0.001, 0.005).play()
    assert match.kept == "compiled" and match.ran.count("eager") == ROUNDS


@pytest.mark.parametrize(
    "compiled,eager,kept",
    [(1.0, 2.0, "compiled"), (1.0, 1.1, "compiled"), (1.02, 1.0, "compiled"), (1.1, 1.0, "eager"), (3.0, 1.0, "eager")],
)
def test_the_faster_one_stays_after_all_rounds(compiled, eager, kept):
    match = Match(compiled, eager).play()
    assert match.kept == kept and match.ran[: WARM_CALLS + 2 * ROUNDS].count("eager") == ROUNDS


def test_eager_may_warm_up_in_its_first_two_calls():
    match = Match(1.2, lambda n: 2.0 if match.ran.count("eager") <= 2 else 1.0)
    assert match.play().kept == "eager"


@pytest.mark.parametrize("disturbed", range(WARM_CALLS + 2 * ROUNDS))
@pytest.mark.parametrize("compiled,eager,kept", [(1.0, 1.15, "compiled"), (1.15, 1.0, "eager"), (1.0, 3.0, "compiled")])
def test_one_disturbed_call_changes_nothing(disturbed, compiled, eager, kept):
    match = Match(lambda n: compiled * (50 if n == disturbed else 1), lambda n: eager * (50 if n == disturbed else 1))
    assert match.play().kept == kept
