"""Events reach every subscriber, cost nothing without one, and never disturb the program that emits them."""

import io
import time

import pytest
import torch
from torch.overrides import TorchFunctionMode

from burnish import events, settings
from burnish.events import Event, emit, is_watched, subscribe
from burnish.report import show_stages

from .recorded_events import recorded
from .runtime.concurrent_threads import at_once


@pytest.fixture(autouse=True)
def start_without_subscribers(monkeypatch):
    monkeypatch.setattr(events, "_subscriptions", ())


def test_subscriber_sees_kind_time_and_data():
    seen = []
    subscribe(seen.append)
    before = time.perf_counter()
    emit("guards.missed", segment=3, kind="identity")
    after = time.perf_counter()
    (event,) = seen
    assert event.kind == "guards.missed" and event.data == {"segment": 3, "kind": "identity"}
    assert before <= event.time <= after


def test_without_subscriber_no_event_is_made(monkeypatch):
    monkeypatch.setattr(events, "Event", lambda *_: pytest.fail("an event was made"))
    assert not is_watched()
    emit("graph")


def test_ended_subscription_gets_no_events_and_may_be_ended_twice():
    seen = []
    stop = subscribe(seen.append)
    assert is_watched()
    stop()
    stop()
    emit("graph")
    assert seen == [] and not is_watched()


def test_one_function_may_subscribe_twice_and_end_once():
    seen = []
    stop = subscribe(seen.append)
    subscribe(seen.append)
    emit("graph")
    stop()
    emit("graph")
    assert len(seen) == 3


def test_subscribers_are_called_in_the_order_they_came():
    seen = []
    for name in "abc":
        subscribe(lambda event, name=name: seen.append(name))
    emit("graph")
    assert seen == ["a", "b", "c"]


def test_subscriber_that_ends_itself_does_not_skip_the_next():
    seen = []
    stops = [subscribe(lambda event: (seen.append("first"), stops[0]()))]
    subscribe(lambda event: seen.append("second"))
    emit("graph")
    emit("graph")
    assert seen == ["first", "second", "second"]


def test_subscriber_that_raises_is_dropped_with_a_warning_and_the_others_continue():
    seen = []

    def faulty(event):
        raise ValueError("no room")

    subscribe(faulty)
    subscribe(seen.append)
    with pytest.warns(RuntimeWarning, match="faulty.*ValueError: no room.*not be called again") as caught:
        emit("graph")
    assert caught[0].filename == __file__
    emit("graph")
    assert len(seen) == 2 and len(caught) == 1


def test_interrupt_in_a_subscriber_passes_through():
    def interrupted(event):
        raise KeyboardInterrupt

    subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        emit("graph")


def test_tensor_operations_of_a_subscriber_are_not_recorded():
    class Recorder(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            recorded.append(func)
            return func(*args, **(kwargs or {}))

    recorded, sums = [], []
    x = torch.ones(3)
    subscribe(lambda event: sums.append(x.sum().item()))
    with Recorder():
        emit("graph")
        assert recorded == []
        x.sum()
    assert sums == [3.0] and len(recorded) == 1


def test_threads_emit_and_subscribe_at_once_without_loss():
    seen, quiet = [], []
    subscribe(seen.append)

    def work():
        for _ in range(500):
            stop = subscribe(quiet.append)
            emit("graph")
            stop()

    at_once(*[work] * 4)
    assert len(seen) == 2000
    assert len(events._subscriptions) == 1


def test_show_prints_the_stages_asked_for_at_the_moment_of_the_event():
    to = io.StringIO()
    show_stages.start(lambda: settings.current().show, to)
    with settings.patch(show={"guards"}):
        emit("guards", text="checked")
        emit("guards.missed", text="self.scale\nexpected 2.0")
        emit("graph", text="unasked")
    emit("guards", text="too late")
    assert to.getvalue() == "[guards] checked\n[guards.missed] self.scale\n    expected 2.0\n"


def test_show_goes_to_stderr_and_not_to_the_output_of_the_program(capsys):
    show_stages.start(lambda: ["graph"])
    emit("graph", nodes=3)
    captured = capsys.readouterr()
    assert captured.err == "[graph] nodes=3\n" and captured.out == ""


def test_event_without_text_shows_its_data_short_and_tensors_by_shape():
    event = Event("graph", 0.0, {"nodes": 3, "x": torch.zeros(2, 3), "source": "y" * 500})
    text = show_stages.render(event)
    assert text.startswith("[graph] nodes=3  x=Tensor[2, 3]  source='yyy") and len(text) < 150


def test_stage_announces_its_begin_and_its_end_and_passes_errors_on():
    @events.stage("halve", "number")
    def halve(number):
        if number % 2:
            raise ValueError("odd")
        return number // 2

    assert halve(4) == 2  # there is no subscriber
    with recorded("stage.begin", "stage.end") as found:
        assert halve(8) == 4
        with pytest.raises(ValueError):
            halve(3)
    assert [(event.kind, event.data["stage"], event.data.get("number")) for event in found] == [
        ("stage.begin", "halve", 8),
        ("stage.end", "halve", None),
        ("stage.begin", "halve", 3),
        ("stage.end", "halve", None),
    ]
    assert all(event.data["seconds"] >= 0 for event in found[1::2])


def test_kind_is_asked_for_by_those_who_name_it():
    stop = events.subscribe(lambda event: None)
    assert events.is_watched("plan") and not events.is_asked_for("plan")
    events.subscribe(lambda event: None, ["plan"])
    stop()
    assert events.is_asked_for("plan") and not events.is_asked_for("graph")
