"""The contest of whole calls: when it begins, which side is kept, and that only speed differs."""

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
from burnish.runtime.contest.whole_call_contest import (
    LARGE_ORDER,
    MOST_WAITING,
    ORDER,
    CallContest,
    OneAtATime,
    tensors_with_gradients,
)
from burnish.runtime.program import arena_memory
from burnish.runtime.segment_records import CALLS_AT_REST, EAGER_STAYS, USUALLY_PLAIN
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

    def play(self, calls=LAST + 2):
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


def test_compiled_code_that_is_always_faster_stays_in_the_second_half():
    match = Match(1.0, 2.0).play(ORDER.rindex("c"))
    assert match.settled == []
    for _ in range(2):
        match.contest([], (), {})
    assert match.kept == "compiled"


def test_eager_is_judged_by_both_halves():
    """Another program slows compiled code down in the first one."""
    half = ORDER.index("e")
    assert Match(lambda n: 3.0 if n < half else 1.0, 1.5).play().kept == "compiled"


@pytest.mark.parametrize("disturbed", range(LAST + 1))
@pytest.mark.parametrize("compiled,eager,kept", [(1.0, 1.15, "compiled"), (1.15, 1.0, "eager"), (1.0, 3.0, "compiled")])
def test_one_disturbed_call_changes_nothing(disturbed, compiled, eager, kept):
    match = Match(lambda n: compiled * (50 if n == disturbed else 1), lambda n: eager * (50 if n == disturbed else 1))
    assert match.play().kept == kept


def test_work_that_depends_on_the_data_does_not_decide():
    """Each call has another amount of work: eager got the least of all, and is not the faster one."""
    amounts = [1 + (7 * n) % 4 / 20 for n in range(LAST + 2)]
    turn = next(turn for turn, side in enumerate(ORDER) if side == "E")
    amounts[turn] = 0.5
    assert Match(lambda n: float(amounts[n]), lambda n: float(amounts[n])).play().kept == "compiled"


def test_eager_runs_few_calls():
    first = ORDER.index("C")
    assert Match(lambda n: 1.0 + (n == first), 1.01).play(2 * LAST).ran.count("eager") == EAGERS <= 8


@pytest.mark.parametrize("order", [ORDER, LARGE_ORDER])
def test_orders_time_one_as_often_as_the_other_after_others_of_its_kind(order):
    assert order.replace("c", "").replace("e", "") == "CCCEEE" * 2
    assert all(before.lower() == side.lower() for before, side in zip(order, order[1:]) if side.isupper())


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


LEAF = torch.ones(2, requires_grad=True)


@pytest.mark.parametrize(
    "result,expected",
    [
        (None, []),
        (1, []),
        (torch.ones(2), []),
        ((torch.ones(2), [torch.ones(2)]), []),
        (LEAF, [LEAF]),
        ({"loss": LEAF}, [LEAF]),
        ([1, (2, LEAF)], [LEAF]),
        ([[[1]]], []),
        ([[[[[]]]]], None),
    ],
)
def test_results_that_carry_gradients(result, expected):
    found = tensors_with_gradients(result)
    assert found is expected is None or [*map(id, found)] == [*map(id, expected)]


def test_objects_with_gradients_among_their_attributes():
    class Output:
        pass

    output = Output()
    assert tensors_with_gradients(output) == []
    output.loss = LEAF
    assert tensors_with_gradients(output)[0] is LEAF


def test_looking_for_gradients_runs_none_of_the_users_code():
    class Mine(dict):
        def values(self):
            raise AssertionError

    class Row(list):
        def __iter__(self):
            raise AssertionError

    assert tensors_with_gradients(Mine(a=Row([LEAF])))[0] is LEAF


# -- with programs -----------------------------------------------------------------------------------------------------


class Slow:
    """Contests of whole calls under a clock by which one of the two takes twice the time of the other."""

    def __init__(self, monkeypatch, slower):
        self.time, self.ran, self.decisions, self.begun = 0.0, [], [], 0
        self.slower = slower
        monkeypatch.setattr(begin_whole_call_contest, "CallContest", self.begin)
        self.stop = events.subscribe(self.listen)

    def begin(self, compiled, eager, name, settle, share, contests):
        self.begun += 1
        return CallContest(
            self.timed(compiled, "compiled"),
            self.timed(eager, "eager"),
            name,
            settle,
            lambda: self.time,
            share,
            contests,
        )

    def timed(self, player, name):
        def play(*inputs):
            self.time += 1.0 + (name == self.slower)
            self.ran.append(name)
            return player(*inputs)

        return play

    def spend(self, slower):
        """The time of a backward."""
        self.time += 5.0 + 5.0 * (self.ran[-1:] == [slower])

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


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_the_backward_of_results_with_gradients_counts(monkeypatch, slower):
    match = Slow(monkeypatch, None)  # forward takes the same time
    weight = torch.ones(5, requires_grad=True)

    @burnish.compile
    def loss(x):
        y = (weight * x).sum()
        look(y.item())
        return {"loss": y * 2}

    for _ in range(2 * CALLS):
        out = loss(torch.ones(5))["loss"]
        if not match.kept:
            out.grad_fn.register_hook(lambda *_: match.spend(slower))
        out.backward()
    assert match.kept == [{"compiled": "eager", "eager": "compiled"}[slower]]
    assert weight.grad[0] == 2 * 2 * CALLS


def test_where_no_backward_follows_forward_alone_decides(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    weight = torch.ones(5, requires_grad=True)

    @burnish.compile
    def loss(x):
        y = (weight * x).sum()
        look(y.item())
        return y * 2

    for _ in range(2 * CALLS):
        loss(torch.ones(5))
    assert match.kept == ["eager"]


def test_backward_through_arguments_ends_where_they_were_made(monkeypatch):
    match = Slow(monkeypatch, None)

    @burnish.compile
    def middle(x):
        look(x.sum().item())
        return x * 2

    for _ in range(2 * CALLS):
        before = torch.ones(5, requires_grad=True) * 1
        before.grad_fn.register_hook(lambda *_: match.spend("compiled"))
        middle(before).sum().backward()
    assert match.kept == ["compiled"], "what runs before was counted"


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
    for _ in range(CALLS_AT_REST + 1):
        assert program(torch.ones(3), False).tolist() == [2.0] * 3
    assert match.begun == 2


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


def without_breaks(x):
    return x.sin() + 1


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_a_program_without_breaks_has_one(monkeypatch, slower):
    match = Slow(monkeypatch, slower)
    program = burnish.compile(without_breaks)
    for _ in range(CALLS):
        x = torch.rand(3)
        torch.testing.assert_close(program(x), without_breaks(x))
    assert match.kept == [{"compiled": "eager", "eager": "compiled"}[slower]]


def test_so_has_one_without_a_graph(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    program = burnish.compile(lambda n: n * n)
    for k in range(CALLS):
        assert program(k) == k * k
    assert "eager" in match.kept


@pytest.mark.parametrize("eager_seconds,ends", [(1.2, True), (0.9, False)])
def test_a_whole_call_as_fast_as_eager_in_the_graphs_contest_ends_it(eager_seconds, ends):
    match = Match(1.0, 1.01)

    def settles(n):
        if n == 0:
            compile_activity_counter.count_step()
            compile_activity_counter.note_bound(eager_seconds)
        return 1.0

    match.seconds["compiled"] = settles
    match.contest = CallContest(
        match.player("compiled"), match.player("eager"), "calls", match.settled.append, lambda: match.time, share=1.0
    )
    match.play(2 * LAST)
    assert match.kept == "compiled" and ("eager" not in match.ran) == ends


def test_what_another_program_has_found_is_not_used():
    match = Match(1.0, 0.5)
    match.contest.players[0].share = 1.0
    compile_activity_counter.note_bound(100.0)
    assert match.play().kept == "eager"


def test_programs_that_draw_by_our_rules_keep_their_numbers(monkeypatch):
    match = Slow(monkeypatch, "compiled")
    drop = burnish.compile(lambda x: torch.nn.functional.dropout(x, 0.5))
    off = burnish.compile(lambda x: torch.nn.functional.dropout(x, 0.0))
    for _ in range(3):
        drop(torch.ones(8))
    assert match.begun == 0
    off(torch.ones(8))
    assert match.begun == 1


def test_one_contest_at_a_time():
    """Two contests take calls in turns: eager runs in one of them until that is decided."""
    together, first, second = OneAtATime(), Match(1.0, 0.5), Match(1.0, 0.5)
    first.contest.contests = second.contest.contests = together
    while not first.settled:
        first.contest([], (), {})
        second.contest([], (), {})
    assert "eager" not in second.ran
    for _ in range(LAST + 2):
        second.contest([], (), {})
    assert second.kept == "eager"


def test_a_contest_that_is_not_called_any_more_holds_up_no_other():
    together, first, second = OneAtATime(), Match(1.0, 0.5), Match(1.0, 0.5)
    first.contest.contests = second.contest.contests = together
    first.play(3)
    assert second.play(MOST_WAITING + LAST + 2).kept == "eager"


# -- where eager stays, guards are checked in some calls only ----------------------------------------------------------


class Counted:
    """A program that eager has won, and how often its guards are checked."""

    def __init__(self, monkeypatch, function):
        self.match = Slow(monkeypatch, "compiled")
        self.call = burnish.compile(function, dynamic=False)
        self.program = self.call.__burnish_program__

    def settle(self, *args):
        for _ in range(CALLS):
            self.call(*args)
        assert self.match.kept == ["eager"]
        return self

    def checks(self, calls):
        """How often each of the guards was checked in these calls."""
        seen = []
        for segment in self.program.entry.segments:
            before = segment.check
            segment.check = lambda slots, before=before: seen.append(0) or before(slots)
        for args in calls:
            self.call(*args)
        return len(seen)


def test_guards_are_checked_rarely_where_eager_stays(monkeypatch):
    counted = Counted(monkeypatch, lambda x: x.view(-1).t()).settle(torch.ones(3))
    counted.checks([(torch.ones(3),)] * USUALLY_PLAIN)
    assert counted.checks([(torch.ones(3),)] * 10 * (CALLS_AT_REST + 1)) <= 12


def test_other_arguments_are_compiled_after_a_while(monkeypatch):
    counted = Counted(monkeypatch, lambda x: x * 2).settle(torch.ones(3))
    for _ in range(2 * USUALLY_PLAIN):
        counted.call(torch.ones(3))
    for _ in range(CALLS_AT_REST + 1):
        assert counted.call(torch.ones(4)).tolist() == [2.0] * 4
    assert counted.match.begun == 2


def test_alternating_arguments_are_checked_in_every_call(monkeypatch):
    counted = Counted(monkeypatch, lambda x: x * 2).settle(torch.ones(3))
    monkeypatch.setattr(counted.match, "slower", "eager")
    for _ in range(CALLS):
        counted.call(torch.ones(4))
    for _ in range(4 * USUALLY_PLAIN):
        counted.call(torch.ones(3))
        counted.call(torch.ones(4))
        assert counted.program.rests == 0 and counted.program.entry.plain_calls <= 1


def test_a_stance_is_asked_in_every_call(monkeypatch):
    counted = Counted(monkeypatch, lambda x: x * 2).settle(torch.ones(3))
    for _ in range(2 * USUALLY_PLAIN):
        counted.call(torch.ones(3))
    with burnish.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        counted.call(torch.ones(5))


@pytest.mark.falls_back("limit")
def test_a_program_given_up_checks_rarely():
    @burnish.compile
    def program(names):
        return {name: 1 for name in names}

    with pytest.warns(UserWarning, match="runs eagerly from now on"):
        for k in range(60):
            assert program([f"{k}", "b"]) == {f"{k}": 1, "b": 1}
    assert program.__burnish_program__.rests > 0
    burnish.reset()
    assert program(["a"]) == {"a": 1} and program.__burnish_program__.rests == 0


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
