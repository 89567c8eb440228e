"""The contest between compiled code and eager: which side is kept, its cost, and that only speed differs."""

import gc
import threading
import weakref
from functools import partial

import pytest
import torch

import burnish
from burnish import events
from burnish.concurrency import waits_for_cores
from burnish.runtime.contest.inference_contest import CLEAR, LARGE_ORDER, ORDER, SLOWER, Contest
from burnish.runtime.program import arena_memory
from burnish.runtime.segment_records import Segment
from burnish.settings import patch

from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once

LAST = len(ORDER) - 1
"""The number of the last call that may be part of a contest."""

EAGERS = [turn for turn, side in enumerate(ORDER) if side in "eE"]
WARM_EAGER, *ROUNDS = EAGERS


@pytest.fixture(autouse=True)
def idle_cores(monkeypatch):
    monkeypatch.setattr(waits_for_cores, "seconds_waited", lambda: 0.0)


class Match:
    """A contest under a clock that only the players move. Calls take milliseconds, which are too short for an early
    decision."""

    def __init__(self, compiled, eager, unit=1e-3):
        self.time, self.unit, self.ran, self.decisions = 0.0, unit, [], []
        self.seconds = {"compiled": compiled, "eager": eager}
        self.contest = Contest(self.player("compiled"), self.player("eager"), "a graph", lambda: self.time)

    def player(self, name):
        def play(*inputs):
            self.ran.append(name)
            seconds = self.seconds[name]
            self.time += self.unit * (seconds(len(self.ran) - 1) if callable(seconds) else seconds)
            return name, inputs

        return play

    def play(self, calls=LAST + 20):
        stop = events.subscribe(
            lambda event: self.decisions.append(event.data) if event.kind == "runtime.contest" else None
        )
        try:
            for k in range(calls):
                answer = self.contest(k)
                assert answer == (self.ran[-1], (k,)) and len(self.ran) == k + 1, "not one player for each call"
        finally:
            stop()
        return self

    @property
    def kept(self):
        assert len(self.decisions) == 1, self.decisions
        return self.decisions[0]["kept"]


# -- which side stays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compiled,eager,kept",
    [
        (1.0, 2.0, "compiled"),
        (1.0, 1.2, "compiled"),
        (1.0, 1.0, "compiled"),
        (1.02, 1.0, "compiled"),
        (1.1, 1.0, "eager"),
        (1.25, 1.0, "eager"),
        (5.0, 1.0, "eager"),
    ],
)
def test_the_faster_one_stays(compiled, eager, kept):
    match = Match(compiled, eager).play()
    assert match.kept == kept
    assert set(match.ran[LAST + 1 :]) == {kept}


def test_an_event_reports_the_loser_and_the_reason():
    (decision,) = Match(0.25, 0.125, unit=1).play().decisions
    assert decision["text"] == "a graph: compiled 250.000 ms, eager 125.000 ms a call: eager stays"
    assert (decision["compiled"], decision["eager"], decision["kept"]) == (0.25, 0.125, "eager")


def test_first_calls_may_take_as_long_as_they_like():
    """Compiled code packs weights, eager's code is generated: neither counts."""
    match = Match(lambda n: 9.0 if n < ROUNDS[0] else 1.0, lambda n: 9.0 if n == WARM_EAGER else 0.5).play()
    assert match.kept == "eager"
    match = Match(lambda n: 9.0 if n < ROUNDS[0] else 0.5, lambda n: 9.0 if n == WARM_EAGER else 1.0).play()
    assert match.kept == "compiled"


@pytest.mark.parametrize("disturbed", range(LAST + 1))
@pytest.mark.parametrize("compiled,eager,kept", [(1.0, 1.15, "compiled"), (1.15, 1.0, "eager"), (1.0, 3.0, "compiled")])
def test_one_disturbed_call_changes_nothing(disturbed, compiled, eager, kept):
    match = Match(lambda n: compiled * (50 if n == disturbed else 1), lambda n: eager * (50 if n == disturbed else 1))
    assert match.play().kept == kept


def test_a_machine_that_is_slow_for_a_while_does_not_decide():
    """Slower by half for a number of calls, at any position: both sides are measured there, or neither."""
    for start in range(LAST):
        slow = range(start, start + 5)
        match = Match(lambda n: 1.0 * (1.5 if n in slow else 1), lambda n: 1.25 * (1.5 if n in slow else 1))
        assert match.play().kept == "compiled", start


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_eager_gets_few_calls_even_where_it_is_close():
    match = Match(1.0, 1.01).play()
    assert match.ran.count("eager") == len(EAGERS) <= 5


def test_two_rounds_are_enough_where_the_difference_is_clear():
    for compiled, eager in ((1.0, CLEAR + 0.1), (CLEAR + 0.1, 1.0)):
        match = Match(compiled, eager).play()
        assert match.ran[: ROUNDS[1] + 2].count("eager") == 3
        assert len(set(match.ran[ROUNDS[1] + 2 :])) == 1


@pytest.mark.parametrize("arenas", [0, 1])
@pytest.mark.parametrize(
    "work",
    [lambda n: 2 if n % 2 else 1, lambda n: 2 if n in (1, 2) else 1],
    ids=["every other call has twice the work", "the machine is slow during two calls"],
)
def test_one_round_does_not_decide_however_clear_it_looks(monkeypatch, arenas, work):
    match = Match(lambda n: 1.2 * work(n), work)
    monkeypatch.setattr(arena_memory, "count_large_arenas", lambda: arenas * len(match.ran))
    assert match.play(len(LARGE_ORDER) + 5).kept == "eager"


LONG_CALLS = 0.05
"""Seconds of calls that are long enough for an early decision."""


@pytest.mark.parametrize("eager,calls_of_eager", [(2.6, 1), (2.1, 2), (1.9, 3), (1.25, len(EAGERS))])
def test_long_calls_of_eager_are_few_where_the_difference_is_clear(eager, calls_of_eager):
    match = Match(1.0, eager, LONG_CALLS).play()
    assert match.kept == "compiled" and match.ran.count("eager") == calls_of_eager


@pytest.mark.parametrize("compiled", [1.1, 5.0])
def test_eager_is_never_kept_early(compiled):
    match = Match(compiled, 1.0, LONG_CALLS).play()
    assert match.kept == "eager" and match.ran[: ROUNDS[1] + 1].count("eager") == 3


def test_generating_eager_s_code_decides_nothing_early():
    """Twenty milliseconds in its first call, beside compiled code that is a bit slower."""
    for milliseconds in range(1, 100):
        match = Match(milliseconds * 1.1, lambda n, each=milliseconds: each + 20 * (n == WARM_EAGER))
        assert match.play().kept == "eager", milliseconds


@pytest.mark.parametrize("waits,kept", [(0.0, "compiled"), (1.0, "eager")])
def test_long_calls_that_waited_for_a_core_decide_nothing_early(monkeypatch, waits, kept):
    """Eager looks three times as slow as it is while other processes use the cores."""
    match = Match(1.2, lambda n: 3.0 if match.ran.count("eager") <= 1 else 1.0, LONG_CALLS)
    monkeypatch.setattr(waits_for_cores, "seconds_waited", lambda: waits * match.time)
    assert match.play().kept == kept


def test_long_calls_with_different_work_decide_nothing_early():
    match = Match(1.2, 1.0, LONG_CALLS)
    match.contest = Contest(match.player("compiled"), match.player("eager"), "a graph", lambda: match.time, lambda _: 1)
    assert not match.contest.early.is_open


def test_eager_may_warm_up_in_its_first_timed_call():
    match = Match(1.2, lambda n: 2.0 if match.ran.count("eager") <= 2 else 1.0)
    assert match.play().kept == "eager"


def test_a_machine_that_is_slow_during_the_first_round_does_not_decide():
    for start in range(LAST):
        for length in range(1, 6):
            slow = range(start, start + length)
            match = Match(lambda n: 2.2 if n in slow else 1.1, lambda n: 2.0 if n in slow else 1.0)
            assert match.play().ran.count("eager") > 2, slow


def test_a_large_arena_leaves_most_of_the_first_ten_calls_to_compiled_code():
    assert sum(side in "eE" for side in LARGE_ORDER[:10]) == 2


def test_eager_is_measured_less_and_less_often():
    ran = Match(1.0, 1.01).play().ran
    places = [k for k, name in enumerate(ran) if name == "eager"]
    gaps = [b - a for a, b in zip(places, places[1:], strict=False)]
    assert gaps == sorted(gaps) and min(gaps) > 1 and gaps[-1] > gaps[0]


def test_each_is_timed_where_the_other_has_just_been():
    ran = Match(1.0, 1.01).play().ran
    for turn in ROUNDS:
        assert ran[turn - 1 : turn + 2] == ["compiled", "eager", "compiled"]


def test_with_a_large_arena_each_runs_twice_and_memory_is_given_back_between(monkeypatch):
    """Eager never runs beside the arena, and compiled code never beside memory that eager returned to malloc."""
    held, timed = set(), []
    monkeypatch.setattr(arena_memory, "count_large_arenas", lambda: len(timed))  # the first call makes one
    monkeypatch.setattr(arena_memory, "give_back", lambda: held.discard("arena"))
    monkeypatch.setattr(arena_memory, "trim", lambda: held.discard("left"))

    def compiled(n):
        assert "left" not in held or match.ran[n - 1] == "compiled"
        timed.append("arena" in held)
        held.add("arena")
        return 1.0

    def eager(n):
        assert "arena" not in held
        timed.append("left" in held)
        held.add("left")
        return 1.01

    match = Match(compiled, eager).play()
    assert match.kept == "compiled"
    assert "".join("e" if name == "eager" else "c" for name in match.ran[: len(LARGE_ORDER)]) == LARGE_ORDER.lower()
    assert all(timed[turn] for turn, side in enumerate(LARGE_ORDER) if side.isupper())


@pytest.mark.parametrize("order", [ORDER, LARGE_ORDER])
def test_orders_time_as_often_one_as_the_other_in_turns(order):
    assert order.replace("c", "").replace("e", "") == "EC" * 4 and order[:2] == "ce" and order[-1] == "C"


def test_segments_call_the_winner_itself_once_there_is_one():
    match = Match(1.0, 2.0)
    facts = dict(guards=[], graph_module=None, break_=None, state=(), writes_inputs=False, changes_autocast=False)
    plain, timed = (Segment(None, match.contest, None, None, **facts) for _ in range(2))
    probe = timed.graph = lambda *inputs: match.contest(*inputs)
    assert plain.graph is match.contest
    match.play()
    assert plain.graph is match.contest.decided and plain.graph is not match.contest
    assert timed.graph is probe, "a wrapper that was put in between stays there"


def test_the_loser_is_freed():
    class Player:
        def __init__(self, seconds):
            self.seconds = seconds

        def __call__(self):
            nonlocal time
            time += self.seconds

    time = 0.0
    players = Player(1.0), Player(2.0)
    seen = [weakref.ref(player) for player in players]
    contest = Contest(*players, "a graph", lambda: time)
    del players
    for _ in range(LAST + 1):
        contest()
    gc.collect()
    assert [ref() is None for ref in seen] == [False, True] and contest.decided is seen[0]()


# -- exceptions and threads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raising", range(LAST + 2))
def test_an_exception_passes_and_the_contest_goes_on(raising):
    match = Match(2.0, 1.0)

    def fail(n):
        if n == raising:
            raise KeyboardInterrupt
        return 2.0

    match.seconds["compiled"] = fail
    stop = events.subscribe(
        lambda event: match.decisions.append(event.data) if event.kind == "runtime.contest" else None
    )
    raised = 0
    for k in range(LAST + 20):
        try:
            match.contest(k)
        except KeyboardInterrupt:
            raised += 1
    stop()
    assert raised == (raising not in EAGERS and raising < len(match.ran) and match.ran[raising] == "compiled")
    assert match.kept == "eager" and match.contest.running == 0


def test_where_every_timed_call_raises_compiled_code_stays():
    match = Match(1.0, 0.1)

    def fail(n):
        raise ValueError

    match.seconds["eager"] = fail
    stop = events.subscribe(
        lambda event: match.decisions.append(event.data) if event.kind == "runtime.contest" else None
    )
    for k in range(LAST + 5):
        if k in EAGERS:
            with pytest.raises(ValueError):
                match.contest(k)
        else:
            match.contest(k)
    stop()
    assert match.kept == "compiled" and "no call could be timed" in match.decisions[0]["text"]


def test_calls_that_overlap_are_not_timed():
    """The second call begins and ends inside the first: both would measure the other as well."""
    time = 0.0
    inner = None

    def compiled():
        nonlocal time
        time += 1.0

    def eager():
        nonlocal time, inner
        if inner is None:
            inner = threading.Thread(target=contest)
            inner.start()
            inner.join()
            inner = None
        time += 0.5

    contest = Contest(compiled, eager, "a graph", lambda: time)
    for _ in range(2 * LAST):
        contest()
    assert contest.times[1] == [] and contest.decided is compiled


def test_many_threads_get_one_decision_and_each_call_one_result():
    results, lock = [], threading.Lock()
    contest = Contest(lambda k: ("compiled", k), lambda k: ("eager", k), "a graph")
    barrier = threading.Barrier(8)

    def work(first):
        barrier.wait()
        for k in range(first, first + 200):
            answer = contest(k)
            with lock:
                results.append(answer)

    with recorded("runtime.contest") as decisions:
        at_once(*(partial(work, 1000 * n) for n in range(8)))
    assert len(decisions) == 1 and contest.running == 0
    assert sorted(k for _, k in results) == sorted(1000 * n + k for n in range(8) for k in range(200))
    if decisions[0].data["kept"] == "compiled":
        assert sum(name == "eager" for name, _ in results) <= len(EAGERS)


def test_a_listener_may_call_the_decided_function():
    match, heard = Match(1.0, 2.0), []
    stop = events.subscribe(
        lambda event: heard.append(match.contest("from the listener")) if event.kind == "runtime.contest" else None
    )
    for k in range(LAST + 1):
        match.contest(k)
    stop()
    assert heard == [("compiled", ("from the listener",))]


# -- with programs -----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def contests_are_held():
    with patch(never_slower=True):
        yield


class Slow:
    """A clock under which one of the two takes twice the time of the other, whatever it really takes."""

    def __init__(self, monkeypatch, slower):
        time = 0.0
        made = Contest.__init__

        def init(contest, compiled, eager, name, clock=None, work=None):
            def timed(player, seconds):
                def play(*inputs):
                    nonlocal time
                    time += seconds
                    return player(*inputs)

                return play

            made(
                contest,
                timed(compiled, 1.0 + (slower == "compiled")),
                timed(eager, 1.0 + (slower == "eager")),
                name,
                lambda: time,
            )

        monkeypatch.setattr(Contest, "__init__", init)
        self.decisions = []
        self.stop = events.subscribe(
            lambda event: self.decisions.append(event.data["kept"]) if event.kind == "runtime.contest" else None
        )

    def kept(self):
        self.stop()
        (kept,) = self.decisions
        return kept


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_a_program_that_writes_to_its_input_does_so_once_a_call(monkeypatch, slower):
    clock = Slow(monkeypatch, slower)
    compiled = burnish.compile(lambda x, y: x.add_(y).sin_().mul(2))
    x, wanted, y = torch.ones(5), torch.ones(5), torch.full((5,), 0.25)
    with torch.no_grad():
        for _ in range(LAST + 8):
            found = compiled(x, y)
            torch.testing.assert_close(found, wanted.add_(y).sin_() * 2)
            torch.testing.assert_close(x, wanted)
    assert clock.kept() != slower


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_a_program_with_random_numbers_generates_them_once_a_call(monkeypatch, slower):
    clock = Slow(monkeypatch, slower)
    compiled = burnish.compile(lambda x: x + torch.rand(3))
    torch.manual_seed(0)
    with torch.no_grad():
        found = [compiled(torch.zeros(3)) for _ in range(LAST + 8)]
        assert clock.kept() != slower
        torch.manual_seed(0)
        again = burnish.compile(lambda x: x + torch.rand(3))
        with patch(never_slower=False):
            assert torch.equal(torch.stack([again(torch.zeros(3)) for _ in found]), torch.stack(found))


@pytest.mark.parametrize("slower", ["compiled", "eager"])
def test_buffers_are_updated_once_a_call(monkeypatch, slower):
    clock = Slow(monkeypatch, slower)
    torch.manual_seed(0)
    norm, twin = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    compiled = burnish.compile(norm)
    with torch.no_grad():
        for _ in range(LAST + 8):
            x = torch.randn(16, 4)
            torch.testing.assert_close(compiled(x), twin(x))
    assert clock.kept() != slower
    assert int(norm.num_batches_tracked) == LAST + 8
    torch.testing.assert_close(norm.running_var, twin.running_var)


def test_an_error_of_the_program_is_raised_in_every_call_and_work_done_before_stays(monkeypatch):
    clock = Slow(monkeypatch, "eager")
    compiled = burnish.compile(lambda p: torch.bernoulli(p) + 1)
    with torch.no_grad():
        for k in range(LAST + 8):
            if k % 3 == 2:
                with pytest.raises(RuntimeError):
                    compiled(torch.full((4,), 2.0))
            else:
                assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 2.0))
    assert clock.kept() == "compiled"


def test_the_setting_turns_it_off():
    with recorded("runtime.contest") as decisions, torch.no_grad():
        with patch(never_slower=False):
            compiled = burnish.compile(lambda x: x.sin() + 1)
            for _ in range(LAST + 8):
                compiled(torch.ones(3))
        assert not decisions
        burnish.reset()
        compiled = burnish.compile(lambda x: x.sin() + 1)
        for _ in range(LAST + 8):
            compiled(torch.ones(3))
        assert len(decisions) == 1


def test_noise_is_below_the_threshold_for_slower():
    assert 1 < SLOWER < CLEAR
