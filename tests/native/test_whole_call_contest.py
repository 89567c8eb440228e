"""The contest of whole calls with graph breaks: when it begins, which side is kept, and that only speed differs."""

import gc
import threading
import weakref
from functools import partial

import pytest
import torch

import burnish
from burnish import events
from burnish.capture.segments import begin_whole_call_contest
from burnish.runtime.contest import compile_activity_counter
from burnish.runtime.contest.whole_call_contest import LARGE_ORDER, ORDER, ROUNDS, CallContest, carries_gradients
from burnish.runtime.program import arena_memory
from burnish.runtime.segment_records import EAGER_STAYS
from burnish.settings import patch

from ..runtime.concurrent_threads import at_once

LAST = len(ORDER) - 1
EAGERS = sum(side in "eE" for side in ORDER)


@pytest.fixture(autouse=True)
def contests_are_held(monkeypatch):
    """In the order for small arenas, whatever earlier tests of this process have made."""
    monkeypatch.setattr(arena_memory, "count_large_arenas", lambda: 0)
    with patch(never_slower=True):
        yield


class Match:
    """A contest under a clock that only the players move."""

    def __init__(self, compiled, eager):
        self.time, self.ran, self.settled = 0.0, [], []
        self.seconds = {"compiled": compiled, "eager": eager}
        self.contest = CallContest(
            self.player("compiled"), self.player("eager"), "calls", self.settled.append, lambda: self.time
        )

    def player(self, name):
        def play(*inputs):
            self.ran.append(name)
            seconds = self.seconds[name]
            self.time += seconds(len(self.ran) - 1) if callable(seconds) else seconds
            return name

        return play

    def play(self, calls=LAST + 1):
        for k in range(calls):
            assert self.contest([k], (k,), {}) == self.ran[-1] and len(self.ran) == k + 1
        return self

    @property
    def kept(self):
        (stays,) = self.settled
        assert stays is None or stays is EAGER_STAYS
        return "compiled" if stays is None else "eager"


# -- which side stays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compiled,eager,kept",
    [
        (1.0, 2.0, "compiled"),
        (1.0, 1.0, "compiled"),
        (1.02, 1.0, "compiled"),
        (1.05, 1.0, "eager"),
        (5.0, 1.0, "eager"),
    ],
)
def test_the_faster_one_stays(compiled, eager, kept):
    assert Match(compiled, eager).play().kept == kept


def test_where_one_is_always_faster_four_rounds_are_enough():
    timed = [turn for turn, side in enumerate(ORDER) if side == "C"]
    for compiled, eager in ((1.0, 2.0), (2.0, 1.0)):
        match = Match(compiled, eager).play(timed[ROUNDS - 1])
        assert match.settled == []
        match.contest([], (), {})
        assert len(match.settled) == 1


@pytest.mark.parametrize("disturbed", range(LAST + 1))
@pytest.mark.parametrize("compiled,eager,kept", [(1.0, 1.15, "compiled"), (1.15, 1.0, "eager"), (1.0, 3.0, "compiled")])
def test_one_disturbed_call_changes_nothing(disturbed, compiled, eager, kept):
    match = Match(lambda n: compiled * (50 if n == disturbed else 1), lambda n: eager * (50 if n == disturbed else 1))
    assert match.play().kept == kept


def test_work_that_depends_on_the_data_does_not_decide():
    """Each call has another amount of work: eager got the least of all, and is not the faster one."""
    amounts = [1 + (7 * n) % 5 for n in range(LAST + 1)]
    turn = next(turn for turn, side in enumerate(ORDER) if side == "E")
    amounts[turn] = 0.5
    assert Match(lambda n: float(amounts[n]), lambda n: float(amounts[n])).play().kept == "compiled"


def test_eager_runs_few_calls():
    first = ORDER.index("C")
    assert Match(lambda n: 1.0 + (n == first), 1.01).play(2 * LAST).ran.count("eager") == EAGERS <= 7


@pytest.mark.parametrize("order", [ORDER, LARGE_ORDER])
def test_orders_time_one_as_often_as_the_other_in_turns(order):
    assert order.replace("c", "").replace("e", "") == "EC" * 6 and order[:2] == "ce" and order[-1] == "C"


def test_memory_is_given_back_where_earlier_calls_have_made_arenas(monkeypatch):
    given = []
    monkeypatch.setattr(arena_memory, "count_large_arenas", lambda: 1)
    monkeypatch.setattr(arena_memory, "give_back", lambda: given.append(len(match.ran)))
    monkeypatch.setattr(arena_memory, "trim", lambda: None)
    first = LARGE_ORDER.index("C")
    match = Match(lambda n: 1.0 + (n == first), 1.01)  # not clear before the end
    match.play(len(LARGE_ORDER))
    assert "".join(name[0] for name in match.ran) == LARGE_ORDER.lower()
    assert given == [turn for turn, side in enumerate(LARGE_ORDER) if side == "e"]


# -- when it begins ----------------------------------------------------------------------------------------------------


def test_turns_of_compiled_code_that_is_not_settled_are_taken_again():
    match = Match(1.0, 2.0)
    seconds = iter([1.0] * 50)

    def unsettled(n):
        compile_activity_counter.count_step()
        return next(seconds)

    match.seconds["compiled"] = unsettled
    match.play(50)
    assert set(match.ran) == {"compiled"} and match.settled == []
    match.seconds["compiled"] = 1.0
    for _ in range(LAST + 1):
        match.contest([], (), {})
    assert match.kept == "compiled" and "eager" in match.ran


@pytest.mark.parametrize(
    "result,expected",
    [
        (None, False),
        (1, False),
        (torch.ones(2), False),
        ((torch.ones(2), [torch.ones(2)]), False),
        (torch.ones(2, requires_grad=True), True),
        ({"loss": torch.ones(2, requires_grad=True)}, True),
        ([1, (2, torch.ones(2, requires_grad=True))], True),
        ([[[[[]]]]], True),
    ],
)
def test_results_that_carry_gradients(result, expected):
    assert carries_gradients(result) is expected


def test_objects_with_gradients_among_their_attributes():
    class Output:
        pass

    output = Output()
    assert not carries_gradients(output)
    output.loss = torch.ones((), requires_grad=True)
    assert carries_gradients(output)


def test_looking_for_gradients_runs_none_of_the_users_code():
    class Mine(dict):
        def values(self):
            raise AssertionError

    class Row(list):
        def __iter__(self):
            raise AssertionError

    assert carries_gradients(Mine(a=Row([torch.ones(1, requires_grad=True)])))


# -- with programs -----------------------------------------------------------------------------------------------------


class Slow:
    """Contests of whole calls under a clock by which one of the two takes twice the time of the other."""

    def __init__(self, monkeypatch, slower):
        self.time, self.ran, self.decisions, self.begun = 0.0, [], [], 0
        self.slower = slower
        monkeypatch.setattr(begin_whole_call_contest, "CallContest", self.begin)
        self.stop = events.subscribe(self.listen)

    def begin(self, compiled, eager, name, settle):
        self.begun += 1
        return CallContest(
            self.timed(compiled, "compiled"), self.timed(eager, "eager"), name, settle, lambda: self.time
        )

    def timed(self, player, name):
        def play(*inputs):
            self.time += 1.0 + (name == self.slower)
            self.ran.append(name)
            return player(*inputs)

        return play

    def listen(self, event):
        if event.kind == "runtime.contest":
            self.decisions.append(event.data["kept"] if "whole calls" in event.data["text"] else "a graph")

    @property
    def kept(self):
        return [name for name in self.decisions if name != "a graph"]


def look(number):
    """Python needs the number: a break."""
    if number > 1e9:
        return 1
    return 0


def reads_a_value(x):
    y = x.sin() * 2
    total = y.sum().item()
    look(total)
    print(end="")
    return y + total


CALLS = 4 * LAST
"""Enough for a graph's contest, and then one of whole calls."""


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_the_faster_one_makes_all_later_calls(monkeypatch, slower):
    match = Slow(monkeypatch, slower)
    program = burnish.compile(reads_a_value)
    for k in range(CALLS):
        x = torch.full((5,), float(k))
        torch.testing.assert_close(program(x), reads_a_value(x))
    match.stop()
    assert match.kept == [{"compiled": "eager", "eager": "compiled"}[slower]]
    assert match.decisions[-1] != "a graph", "it was decided before the graphs were"
    ran = len(match.ran)
    program(x)
    assert len(match.ran) == ran, "a decided contest is no longer called"


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_a_call_has_its_effects_once(monkeypatch, slower):
    match, seen = Slow(monkeypatch, slower), []

    def program(x, y):
        x.add_(y)
        total = x.sum().item()
        seen.append(total)
        look(total)
        return x * 2

    compiled = burnish.compile(program)
    x, y = torch.zeros(5), torch.ones(5)
    for k in range(1, CALLS):
        assert compiled(x, y)[0] == 2 * k and seen[-1] == 5 * k and len(seen) == k
    assert len(match.kept) == 1


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_errors_pass_as_they_are_and_calls_go_on(monkeypatch, slower):
    match = Slow(monkeypatch, slower)

    @burnish.compile
    def program(x):
        if x.sum() > 0:
            raise KeyError("positive")
        return x - 1

    for k in range(CALLS):
        if k % 5 == 0:
            with pytest.raises(KeyError, match="positive"):
                program(torch.ones(3))
        else:
            assert program(-torch.ones(3))[0] == -2
    assert len(match.kept) == 1


def test_each_way_of_calling_reaches_eager(monkeypatch):
    match = Slow(monkeypatch, "compiled")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x, *more, scale=1.0, **options):
            y = self.linear(x)
            look(y.sum().item())
            return y * scale + sum(more) + options.get("bias", 0)

    net = Net()
    compiled = burnish.compile(net)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x, 1, 2, scale=3.0, bias=4), net(x, 1, 2, scale=3.0, bias=4))
    assert match.kept == ["eager"]


def test_results_with_gradients_are_not_judged(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    weight = torch.ones(5, requires_grad=True)

    @burnish.compile
    def loss(x):
        y = (weight * x).sum()
        look(y.item())
        return y * 2

    for _ in range(CALLS):
        loss(torch.ones(5)).backward()
    assert match.begun == 1 and match.kept == [] and match.ran == ["compiled"]  # traced, then withdrawn
    assert weight.grad[0] == 2 * CALLS


def test_whole_training_steps_with_breaks_are_judged(monkeypatch):
    match = Slow(monkeypatch, "eager")
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    @burnish.compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        print(end="")
        look(loss.item())
        optimizer.step()
        return loss.item()

    losses = [step(torch.ones(2, 4)) for _ in range(CALLS)]
    assert losses[-1] < losses[0] and match.kept == ["compiled"]


def test_other_arguments_have_a_contest_of_their_own(monkeypatch):
    match = Slow(monkeypatch, "compiled")

    @burnish.compile(dynamic=False)
    def program(x):
        y = x * 2
        look(y.sum().item())
        return y + 1

    for _ in range(CALLS):
        for size in (3, 4):
            assert program(torch.ones(size)).tolist() == [3.0] * size
    assert match.begun == 2 and match.kept == ["eager", "eager"]


def test_when_arguments_change_again_the_losing_side_does_not_take_them(monkeypatch):
    match = Slow(monkeypatch, "compiled")

    @burnish.compile
    def program(x, deep):
        y = x * 2
        look(y.sum().item())
        return y + 1 if deep else y

    for _ in range(CALLS):
        program(torch.ones(3), True)
    assert match.kept == ["eager"]
    assert program(torch.ones(3), False).tolist() == [2.0] * 3 and match.begun == 2


@pytest.mark.parametrize(
    "how",
    [
        lambda program: burnish.compile(program, options={"never_slower": False}),
        lambda program: burnish.compile(program, backend="eager"),
    ],
)
def test_where_nothing_is_compared_there_is_none(monkeypatch, how):
    match = Slow(monkeypatch, "compiled")
    program = how(reads_a_value)
    for _ in range(CALLS):
        program(torch.ones(3))
    assert match.begun == 0


def test_a_program_without_breaks_has_none(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    program = burnish.compile(lambda x: x.sin() + 1)
    for _ in range(CALLS):
        program(torch.ones(3))
    assert match.begun == 0


def test_explain_begins_none(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    assert burnish.explain(reads_a_value)(torch.ones(3)).graph_break_count > 0
    assert match.begun == 0


def test_reset_restarts_the_contest(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    program = burnish.compile(reads_a_value)
    for _ in range(CALLS):
        program(torch.ones(3))
    burnish.reset()
    program(torch.ones(3))
    assert match.begun == 2


def test_many_threads_get_one_decision_and_right_results(monkeypatch):
    match, wrong = Slow(monkeypatch, "compiled"), []
    program = burnish.compile(reads_a_value)
    program(torch.ones(5))
    barrier = threading.Barrier(4)

    def work(first):
        barrier.wait()
        for k in range(first, first + 3 * CALLS):
            x = torch.full((5,), float(k))
            if not torch.allclose(program(x), reads_a_value(x)):
                wrong.append(k)

    at_once(*(partial(work, 100 * n) for n in range(4)))
    for _ in range(CALLS):  # calls that overlap are not timed
        program(torch.ones(5))
    assert not wrong and len(match.kept) == 1


def test_neither_arguments_nor_the_loser_are_kept_alive(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    program, refs = burnish.compile(reads_a_value), []
    for _ in range(CALLS):
        x = torch.ones(3)
        refs.append(weakref.ref(x))
        program(x)
        del x
    assert match.kept == ["eager"]
    gc.collect()
    assert all(ref() is None for ref in refs)
