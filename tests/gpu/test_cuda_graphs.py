"""CUDA graphs of inference, on a CPU: `fake_cuda_graphs` runs the program again instead of replaying it."""

import threading

import pytest
import torch

import burnish
from burnish.runtime.cuda_graphs.cuda_graph_memory import Outcome, storage_of
from burnish.runtime.cuda_graphs.cuda_graph_recording import RecordingRefused
from burnish.runtime.cuda_graphs.cuda_graph_replay import MOST, CudaGraphProgram
from burnish.runtime.program.autograd_function import WithoutGradientFlow
from burnish.runtime.program.input_alias_check import AliasCheckedProgram

from ..recorded_events import recorded
from .fake_cuda_graphs import Engine


@pytest.fixture
def graph_events():
    with recorded("runtime.cuda_graphs") as found:
        yield found


def test_the_second_call_is_recorded_and_later_ones_replayed_on_other_inputs():
    engine, w = Engine(), torch.randn(4)
    call = CudaGraphProgram(lambda x, w: (x * w, x + 1), [1], [], engine, "a graph")
    kept = []
    for _ in range(5):
        x = torch.randn(3, 4)
        kept.append((call(x, w), (x * w, x + 1)))
    assert engine.captures == 1 and engine.replays == 4
    for got, want in kept:  # results are the caller's: later calls have left them alone
        torch.testing.assert_close(got, want)


def test_results_of_one_are_inputs_of_another():
    f = CudaGraphProgram(lambda x: (x * 2,), [], [], Engine(), "f")
    g = CudaGraphProgram(lambda x: (x + 1,), [], [], Engine(), "g")
    for k in range(4):
        x = torch.full((3,), float(k))
        assert torch.equal(g(*f(x))[0], x * 2 + 1)


def test_written_inputs_are_written_in_place_and_their_versions_count():
    x = torch.zeros(3)
    engine = Engine([x])
    call = CudaGraphProgram(lambda x, y: (x.add_(y),), [], [0], engine, "a step")
    for k in range(4):
        before = x._version
        (out,) = call(x, torch.ones(3))
        assert out is x and x._version > before
        assert torch.equal(x, torch.full((3,), k + 1.0))


def test_parameters_at_other_addresses_are_recorded_again_up_to_a_limit():
    engine = Engine()
    call = CudaGraphProgram(lambda x, w: (x * w,), [1], [], engine, "a graph")
    for k in range(MOST + 3):
        x, w = torch.randn(4), torch.randn(4)
        for _ in range(3):
            torch.testing.assert_close(call(x, w)[0], x * w)
    assert engine.captures <= MOST


def test_another_number_and_another_stream_are_other_graphs():
    engine = Engine()
    call = CudaGraphProgram(lambda x, s: (x * s,), [], [], engine, "a graph")
    x = torch.randn(4)
    for s in (2.0, 3.0, 2.0, 3.0, 2.0):
        torch.testing.assert_close(call(x, s)[0], x * s)
    assert engine.captures == 2
    engine.at = 1
    torch.testing.assert_close(call(x, 2.0)[0], x * 2)
    assert engine.captures == 2


def test_equal_numbers_that_are_not_the_same_are_other_graphs():
    call = CudaGraphProgram(lambda x, s: (torch.copysign(x, torch.tensor(s)), x * s), [], [], Engine(), "a graph")
    x = torch.ones(2, dtype=torch.int64)
    for s in (0.0, -0.0, 2, 2.0, True) * 3:
        (sign, product), want = call(x, s), x * s
        assert product.dtype == want.dtype and torch.equal(sign, torch.copysign(x, torch.tensor(s)))


def test_an_input_at_another_address_is_a_reason():
    call = CudaGraphProgram(lambda x: (x * 2,), [], [], Engine(), "a graph")
    for _ in range(3):
        call(torch.ones(2, device="meta"))
    assert call.graphs.why_not == "input 0 is on meta"


def test_views_of_inputs_and_inputs_themselves_are_the_callers():
    call = CudaGraphProgram(lambda x: (x, x[1:], x * 2), [], [], Engine(), "a graph")
    for _ in range(3):
        base = torch.randn(5, 4)
        x = base[1:]
        same, view, twice = call(x)
        assert torch.equal(twice, x * 2)
        assert same is x and torch.equal(view, x[1:]) and view.data_ptr() == x[1:].data_ptr()


def test_overlapping_inputs_run_without_a_cuda_graph():
    base = torch.arange(6.0)
    program = AliasCheckedProgram(lambda x, y: (x.add_(y),), lambda x, y: ("eager",), [0], {0: 16, 1: 16})
    engine = Engine([base])
    call = CudaGraphProgram(program, [], [0], engine, "a step")
    assert [call(base[:4], base[2:]) for _ in range(3)] == [("eager",)] * 3
    assert engine.captures == 0


@pytest.mark.parametrize(
    "program, why",
    [
        (lambda x: (y := x * 2, y[1:]), "two results share their memory"),
        (lambda x: (x.view(torch.int32),), "shows the memory of an input as something else"),
        (lambda x: (x * x.sum().item(),), "waits for the GPU"),
        (lambda x: (x.masked_fill(x > 0, 0).index_put_((x > 0,), x.new_ones(())),), "one of its indices is a mask"),
        (lambda x: (x * 2, torch.ones(3, device="meta"))[:1], "is given or makes something on meta"),
        (lambda x: ([x * 2],), "lists of tensors"),
    ],
)
def test_results_that_cannot_be_copied_run_without_a_cuda_graph(program, why, graph_events):
    call = CudaGraphProgram(program, [], [], Engine(), "a graph")
    for _ in range(3):
        call(torch.randn(4))
    assert why in call.graphs.why_not and len(graph_events) == 1


def test_a_call_that_cannot_be_recorded_runs_on():
    class Refusing(Engine):
        def capture(self, run, memory=None):
            raise RuntimeError("operation not permitted when stream is capturing")

    call = CudaGraphProgram(lambda x: (x * 2,), [], [], Refusing(), "a graph")
    for _ in range(3):
        assert torch.equal(call(torch.ones(2))[0], torch.full((2,), 2.0))
    assert "not permitted" in call.graphs.why_not


def test_why_it_cannot_be_recorded_is_seen_in_the_first_call():
    engine = Engine()
    call = CudaGraphProgram(lambda x: (x * x.sum().item(),), [], [], engine, "a graph")
    assert torch.equal(call(torch.ones(2))[0], torch.full((2,), 2.0))
    assert call.graphs.why_not and engine.captures == 0


def test_a_result_that_is_given_twice_is_one_tensor():
    call = CudaGraphProgram(lambda x: (y := x * 2, y), [], [], Engine(), "a graph")
    for _ in range(3):
        one, two = call(torch.ones(2))
        assert one is two and torch.equal(one, torch.full((2,), 2.0))


def test_expanded_and_overlapping_inputs_and_results():
    call = CudaGraphProgram(lambda x, y: (x + y, (x * 2)[:, :1].expand(2, 3)), [], [], Engine(), "a graph")
    for _ in range(4):
        x, y = torch.randn(3).expand(2, 3), torch.randn(4).unfold(0, 3, 1)
        total, wide = call(x, y)
        assert torch.equal(total, x + y)
        assert torch.equal(wide, (x * 2)[:, :1].expand(2, 3)) and wide.stride() == (3, 0)
    assert call.graphs.why_not is None


def test_empty_tensors_share_no_memory():
    call = CudaGraphProgram(lambda x: (x * 2, x + 1, x.float()), [], [], Engine(), "a graph")
    for _ in range(3):
        assert [len(out) for out in call(torch.ones(0))] == [0, 0, 0]
    assert call.graphs.why_not is None


def test_inputs_that_require_gradients_leave_no_trace_in_their_places():
    call = CudaGraphProgram(WithoutGradientFlow(lambda x: (x.detach() * 2, x[1:])), [], [], Engine(), "a step")
    for _ in range(4):
        x = torch.randn(3, requires_grad=True)
        double, part = call(x * 1)
        assert torch.equal(double, x * 2) and not double.requires_grad and part.grad_fn is None
    (found,) = call.graphs.recorded.values()
    assert all(not place.requires_grad for place in found.places.values())


def test_a_call_in_inference_mode_and_one_outside_are_one_graph():
    engine = Engine()
    call = CudaGraphProgram(lambda x: (x * 2,), [], [], engine, "a graph")
    for k in range(6):
        x = torch.full((2,), float(k))
        with torch.inference_mode(k % 3 != 2):
            assert torch.equal(call(x)[0], x * 2)
    assert engine.captures == 1 and call.graphs.why_not is None


def test_calls_inside_the_users_recording_or_a_replay_run_without_a_cuda_graph():
    engine = Engine()
    call = CudaGraphProgram(lambda x: (x * 2,), [], [], engine, "a graph")
    x = torch.ones(2)
    for _ in range(3):
        call(x)
    engine.records_already = True
    assert torch.equal(call(x)[0], x * 2) and engine.replays == 2
    engine.records_already = False
    assert engine.alone.begin()  # as a finalizer finds it that runs between a replay and its copies
    assert torch.equal(call(x)[0], x * 2) and engine.replays == 2
    engine.alone.end()
    call(x)
    assert engine.replays == 3


def test_a_thread_records_programs_it_has_run_itself():
    engine = Engine()
    call = CudaGraphProgram(lambda x: (x * 2,), [], [], engine, "a graph")
    x = torch.ones(2)
    call(x)
    other = threading.Thread(target=call, args=(x,))
    other.start()
    other.join()
    assert engine.captures == 0
    call(x)
    call(x)
    assert engine.captures == 1


def test_parameters_are_not_held():
    call = CudaGraphProgram(lambda x, w: (x * w, w[1:]), [1], [], Engine(), "a graph")
    w = torch.randn(4)
    for _ in range(3):
        call(torch.randn(4), w)
    (found,) = call.graphs.recorded.values()
    assert list(found.places) == [0]
    assert all(storage_of(x) != storage_of(w) for x in found.outcome.copied)


def test_saved_view_of_a_result_is_a_view_of_the_users_copy():
    x = torch.arange(6.0)
    result = x * 2
    outcome = Outcome([result, result[2:], result * 3], [x], x.device, count=1)
    shown, part, saved = outcome.handed_out([x])
    assert shown is not result and torch.equal(shown, x * 2) and saved is not None
    before = part._version
    shown.add_(1)  # autograd, which has saved the part, is to see this
    assert torch.equal(part, (x * 2 + 1)[2:]) and part._version > before
    assert part._base is not shown  # or it would hold the node that holds it
    assert outcome.home(1, {}).data_ptr() == result[2:].data_ptr()
    with pytest.raises(RecordingRefused, match="reaches further"):
        Outcome([result[1:], result], [x], x.device, count=1)


def test_on_a_cpu_the_mode_says_that_there_is_nothing_to_record(graph_events):
    fn = burnish.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    x = torch.randn(5)
    torch.testing.assert_close(fn(x), x.sin() + 1)
    assert "does not compute on a GPU" in graph_events[0].data["text"]


def test_numbers_that_come_once_do_not_keep_others_out():
    engine = Engine()
    call = CudaGraphProgram(lambda x, s: (x * s,), [], [], engine, "a graph")
    x = torch.randn(4)
    for k in range(2 * MOST):
        torch.testing.assert_close(call(x, 0.5 + k)[0], x * (0.5 + k))
    assert engine.captures == 0
    for _ in range(3):
        torch.testing.assert_close(call(x, 7.25)[0], x * 7.25)
    assert engine.captures == 1
