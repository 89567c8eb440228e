"""Recorded calls, with an engine that records nothing: a replay runs the program again, into the same memory."""

import threading

import pytest
import torch

import burnish
from burnish import events
from burnish.runtime.apart import Apart
from burnish.runtime.cuda_graphs import MOST, Graphed


@pytest.fixture
def told():
    found = []
    stop = events.subscribe(lambda event: found.append(event) if event.kind == "runtime.cuda_graphs" else None)
    yield found
    stop()


class Engine:
    """As a GPU's: recording does nothing to memory, and each replay writes its results where the first ones lay."""

    device = torch.device("cpu")

    def __init__(self, fixed=()):
        self.lock = threading.Lock()
        self.fixed, self.captures, self.replays, self.at = list(fixed), 0, 0, 0

    def stream(self):
        return self.at

    def capture(self, run):
        self.captures += 1
        kept = [x.clone() for x in self.fixed]
        result = run()
        for x, old in zip(self.fixed, kept, strict=True):
            x.copy_(old)

        def replay():
            self.replays += 1
            for place, made in zip(result, run(), strict=True):
                if isinstance(place, torch.Tensor) and place is not made:
                    place.copy_(made)

        return replay, result


def test_the_second_call_is_recorded_and_later_ones_replayed_on_other_inputs():
    engine, w = Engine(), torch.randn(4)
    call = Graphed(lambda x, w: (x * w, x + 1), [1], [], engine, "a graph")
    kept = []
    for _ in range(5):
        x = torch.randn(3, 4)
        kept.append((call(x, w), (x * w, x + 1)))
    assert engine.captures == 1 and engine.replays == 4
    for got, want in kept:  # results are the caller's: later calls have left them alone
        torch.testing.assert_close(got, want)


def test_results_of_one_are_inputs_of_another():
    f = Graphed(lambda x: (x * 2,), [], [], Engine(), "f")
    g = Graphed(lambda x: (x + 1,), [], [], Engine(), "g")
    for k in range(4):
        x = torch.full((3,), float(k))
        assert torch.equal(g(*f(x))[0], x * 2 + 1)


def test_what_is_written_to_is_written_where_it_is_and_its_version_counts():
    x = torch.zeros(3)
    engine = Engine([x])
    call = Graphed(lambda x, y: (x.add_(y),), [], [0], engine, "a step")
    for k in range(4):
        before = x._version
        out, = call(x, torch.ones(3))
        assert out is x and x._version > before
        assert torch.equal(x, torch.full((3,), k + 1.0))


def test_parameters_that_lie_elsewhere_are_recorded_anew_and_only_so_often():
    engine = Engine()
    call = Graphed(lambda x, w: (x * w,), [1], [], engine, "a graph")
    for k in range(MOST + 3):
        x, w = torch.randn(4), torch.randn(4)
        for _ in range(3):
            torch.testing.assert_close(call(x, w)[0], x * w)
    assert engine.captures <= MOST


def test_another_number_and_another_stream_are_other_graphs():
    engine = Engine()
    call = Graphed(lambda x, s: (x * s,), [], [], engine, "a graph")
    x = torch.randn(4)
    for s in (2.0, 3.0, 2.0, 3.0, 2.0):
        torch.testing.assert_close(call(x, s)[0], x * s)
    assert engine.captures == 2
    engine.at = 1
    torch.testing.assert_close(call(x, 2.0)[0], x * 2)
    assert engine.captures == 2


def test_equal_numbers_that_are_not_the_same_are_other_graphs():
    call = Graphed(lambda x, s: (torch.copysign(x, torch.tensor(s)), x * s), [], [], Engine(), "a graph")
    x = torch.ones(2, dtype=torch.int64)
    for s in (0.0, -0.0, 2, 2.0, True) * 3:
        (sign, product), want = call(x, s), x * s
        assert product.dtype == want.dtype and torch.equal(sign, torch.copysign(x, torch.tensor(s)))


def test_an_input_that_lies_elsewhere_is_a_reason():
    call = Graphed(lambda x: (x * 2,), [], [], Engine(), "a graph")
    for _ in range(3):
        call(torch.ones(2, device="meta"))
    assert call.why_not == "input 0 is on meta"


def test_views_of_inputs_and_inputs_themselves_are_the_callers():
    call = Graphed(lambda x: (x, x[1:], x * 2), [], [], Engine(), "a graph")
    for _ in range(3):
        base = torch.randn(5, 4)
        x = base[1:]
        same, view, _ = call(x)
        assert same is x and torch.equal(view, x[1:]) and view.data_ptr() == x[1:].data_ptr()


def test_inputs_that_overlap_run_as_they_stand():
    base = torch.arange(6.0)
    program = Apart(lambda x, y: (x.add_(y),), lambda x, y: ("eager",), [0], {0: 16, 1: 16})
    engine = Engine([base])
    call = Graphed(program, [], [0], engine, "a step")
    assert [call(base[:4], base[2:]) for _ in range(3)] == [("eager",)] * 3
    assert engine.captures == 0


@pytest.mark.parametrize("program, why", [
    (lambda x: (y := x * 2, y[1:]), "two results share their memory"),
    (lambda x: ([x * 2],), "lists of tensors"),
])
def test_what_cannot_be_copied_out_runs_without(program, why, told):
    call = Graphed(program, [], [], Engine(), "a graph")
    for _ in range(3):
        call(torch.randn(4))
    assert why in call.why_not and len(told) == 1


def test_a_call_that_cannot_be_recorded_runs_on():
    class Refusing(Engine):
        def capture(self, run):
            raise RuntimeError("operation not permitted when stream is capturing")

    call = Graphed(lambda x: (x * 2,), [], [], Refusing(), "a graph")
    for _ in range(3):
        assert torch.equal(call(torch.ones(2))[0], torch.full((2,), 2.0))
    assert "not permitted" in call.why_not


def test_on_a_cpu_the_mode_says_that_there_is_nothing_to_record(told):
    fn = burnish.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    x = torch.randn(5)
    torch.testing.assert_close(fn(x), x.sin() + 1)
    assert "does not compute on a GPU" in told[0].data["text"]
