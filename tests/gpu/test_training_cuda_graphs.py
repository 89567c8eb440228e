"""CUDA graphs of forward and backward, with `fake_cuda_graphs`, which spoils memory that a replay is about to write.

Programs are compiled by Burnish, wrapped as they are on a GPU, and held against eager."""

import copy
import gc
from functools import partial

import pytest
import torch
from torch import nn

import burnish
from burnish.compiler import compile_or_fall_back
from burnish.compiler.adapters import cuda_graphs
from burnish.runtime.cuda_graphs import cuda_graph_recording

from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once
from .fake_cuda_graphs import Engine


@pytest.fixture
def engine(monkeypatch):
    """Code compiled under the mode takes the CPU for a GPU."""
    made = Engine()
    for module in (compile_or_fall_back, cuda_graphs):
        monkeypatch.setattr(module, "gpus_of", lambda inputs: {made.device})
    monkeypatch.setattr(cuda_graph_recording, "engine_of", lambda device: made)
    return made


@pytest.fixture
def reasons():
    with recorded("runtime.cuda_graphs", datum="why") as found:
        yield found


def compiled(fn):
    return burnish.compile(fn, fullgraph=True, mode="reduce-overhead")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)).square()).softmax(-1)


def twins(make=Net):
    net = make()
    other = make()
    other.load_state_dict(net.state_dict())
    return net, other


def warm(run, net):
    """Capture, the first call, the one that records forward, and the backwards of the last two."""
    for _ in range(4):
        run(torch.randn(5, 6)).sum().backward()
        net.zero_grad()


def same_gradients(net, other):
    for x, y in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_training_is_recorded_and_trains_as_eager_does(engine, reasons):
    net, other = twins()
    run = compiled(net)
    losses = []
    for model, fn in ((net, run), (other, other)):
        torch.manual_seed(5)
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for _ in range(8):
            x = torch.randn(5, 6, requires_grad=True)
            loss = (fn(x) - 1).square().sum()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append((loss.detach(), x.grad))
    torch.testing.assert_close(losses[:8], losses[8:])
    assert engine.captures == 2 and engine.replays >= 8 and not reasons
    assert engine.memories[0] is engine.memories[1] is not None


def test_kernels_for_a_gpu_are_recorded_as_well(engine):
    pytest.importorskip("triton")
    from .simulated_gpu import interpreted

    net, other = twins()
    with interpreted() as ran:
        run = compiled(net)
        for _ in range(6):
            x = torch.randn(5, 6)
            run(x).square().sum().backward()
            other(x).square().sum().backward()
        same_gradients(net, other)
    assert ran and engine.captures == 2 and engine.replays == 4 + 3


def test_saved_tensors_outlive_later_calls(engine, reasons):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    xs = [torch.randn(5, 6) for _ in range(3)]
    kept = [run(x) for x in xs]  # the first by its graph, the others must not
    replays = engine.replays
    for k in (1, 0, 2):
        kept[k].square().sum().backward()
        other(xs[k]).square().sum().backward()
        same_gradients(net, other)
    assert engine.replays == replays + 1
    assert len(reasons) == 1 and "backward is still to come" in reasons[0]
    run(xs[0])
    assert engine.replays == replays + 2  # and now it may again


def test_backward_twice_with_another_call_in_between(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    x, y = torch.randn(5, 6), torch.randn(5, 6)
    first = run(x).square().sum()
    first.backward(retain_graph=True)
    run(y).sum().backward()
    first.backward()
    for each in (x, x):
        other(each).square().sum().backward()
    other(y).sum().backward()
    same_gradients(net, other)
    with pytest.raises(RuntimeError, match="second time"):
        first.backward()


def test_a_result_whose_backward_never_comes_and_one_that_is_dropped(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    replays = engine.replays
    kept = run(torch.randn(5, 6))
    value = kept.detach().clone()
    run(torch.randn(5, 6)).sum().backward()
    assert engine.replays == replays + 1 and torch.equal(kept, value)
    del kept
    gc.collect()
    run(torch.randn(5, 6)).sum().backward()
    assert engine.replays == replays + 3


def test_backward_of_one_output_alone(engine):
    def fn(x, w):
        y = torch.sin(x @ w)  # shared by both outputs: one node of autograd
        return y.exp(), y.cos().sum()

    run, w = compiled(fn), torch.randn(3, 3, requires_grad=True)
    for k in range(7):
        x = torch.randn(2, 3)
        y, total = run(x, w)
        (out,) = torch.autograd.grad((y.sum(), total)[k % 2], w)
        y, total = fn(x, w)
        torch.testing.assert_close(out, torch.autograd.grad((y.sum(), total)[k % 2], w)[0])
    assert engine.captures == 2


def test_results_and_gradients_are_the_users(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    out, gradients, want = [], [], []
    for _ in range(3):
        x = torch.randn(5, 6)
        y = run(x)
        gradients.append(torch.autograd.grad(y.square().sum(), net.parameters()))
        out.append(y.detach())
        z = other(x)
        want.append((torch.autograd.grad(z.square().sum(), other.parameters()), z.detach()))
    torch.testing.assert_close(list(zip(gradients, out, strict=True)), want)


def test_writing_to_saved_tensors_is_the_error_of_eager(engine):
    net, _ = twins()
    run = compiled(net)
    warm(run, net)
    y = run(torch.randn(5, 6))  # softmax saves its result
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    del y
    y = run(torch.randn(5, 6))
    with torch.no_grad():
        net.two.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_backward_reads_values_written_past_autograd(engine):
    def fn(x, w):
        return torch.tanh(x * w)

    run, w = compiled(fn), torch.randn(4, requires_grad=True)
    for _ in range(6):
        x, found = torch.randn(4), []
        for each in (run, fn):
            given = x.clone()
            y = each(given, w)
            y.data += 0.5
            given.data *= 3
            found.append(torch.autograd.grad(y.sum(), w)[0])
        torch.testing.assert_close(*found)
    assert engine.replays > 4


def test_an_error_between_forward_and_backward(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    x = torch.randn(5, 6)

    def fail(gradient):
        raise ValueError("a hook")

    y = run(x)
    y.register_hook(fail)
    with pytest.raises(ValueError, match="a hook"):
        y.sum().backward()
    z = run(x)
    z.square().sum().backward()
    other(x).square().sum().backward()
    same_gradients(net, other)
    assert torch.equal(y, z)


def test_a_call_from_within_backward(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    x, results = torch.randn(5, 6), []
    for fn in (run, other):
        y = fn(x)
        y.register_hook(lambda gradient, fn=fn: gradient + fn(x * 2).detach())
        y.square().sum().backward()
        results.append(y.detach())
    same_gradients(net, other)
    torch.testing.assert_close(*results)


def test_threads_that_train_at_once(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    xs, wrong = [torch.randn(5, 6) for _ in range(4)], []
    want = [torch.autograd.grad(other(x).square().sum(), other.parameters()) for x in xs]

    def work(k):
        for _ in range(20):
            got = torch.autograd.grad(run(xs[k]).square().sum(), net.parameters())
            if not all(torch.allclose(x, y, atol=1e-5) for x, y in zip(got, want[k], strict=True)):
                wrong.append(k)

    at_once(*(partial(work, k) for k in range(4)))
    assert not wrong


def test_gradients_of_gradients_come_from_eager(engine):
    def fn(x, w):
        return (x * w).sin().sum()

    run, w = compiled(fn), torch.randn(4, requires_grad=True)
    for _ in range(5):
        x = torch.randn(4)
        found = []
        for each in (run, fn):
            (first,) = torch.autograd.grad(each(x, w), w, create_graph=True)
            found.append(torch.autograd.grad(first.sum(), w)[0])
        torch.testing.assert_close(*found)


def test_buffers_are_written_where_they_are(engine):
    def make():
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU())

    net, other = twins(make)
    run = compiled(net)
    for _ in range(7):
        engine.fixed = [net[1].running_mean, net[1].running_var, net[1].num_batches_tracked]
        x, before = torch.randn(5, 6), [buffer._version for buffer in net.buffers()]
        run(x).square().sum().backward()
        other(x).square().sum().backward()
        same_gradients(net, other)
        # Torch counts batches by a write that autograd sees, and updates statistics by one that it does not see.
        assert [buffer._version > old for buffer, old in zip(net.buffers(), before, strict=True)] == [
            False,
            False,
            True,
        ]
        torch.testing.assert_close(list(net.buffers()), list(other.buffers()))
    assert engine.captures == 2


def test_other_parameters_are_recorded_again_and_backward_uses_those_of_its_forward(engine):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    x = torch.randn(5, 6)
    for _ in range(4):
        with torch.no_grad():
            for p, q in zip(net.parameters(), other.parameters(), strict=True):
                p.data = p.data.clone()
                q.copy_(p)
                p.grad = q.grad = None
        for _ in range(4):
            run(x).square().sum().backward()
            other(x).square().sum().backward()
            same_gradients(net, other)
    assert engine.captures == 2 * 5
    plain = burnish.compile(other, fullgraph=True)  # eager saves views of parameters, which is another thing
    for _ in range(2):
        plain(x)
    replays, results = engine.replays, [run(x).square().sum(), plain(x).square().sum()]
    for p in (*net.parameters(), *other.parameters()):
        p.data = p.data * 2  # new memory before backward, unseen by autograd
    for y in results:
        y.backward()
    same_gradients(net, other)
    assert engine.replays == replays + 1


@pytest.mark.falls_back("sizes")
def test_every_size_has_its_graphs_up_to_a_number(engine):
    net, other = twins()
    run = burnish.compile(net, mode="reduce-overhead")
    for _ in range(5):
        for size in (3, 4):
            x = torch.randn(size, 6)
            for _ in range(3):
                run(x).square().sum().backward()
                other(x).square().sum().backward()
    same_gradients(net, other)
    # The first size is compiled again at the second one, before backward is recorded.
    assert engine.captures == 1 + 2 * 2


def test_random_numbers_equal_those_of_calls_without_a_cuda_graph(engine):
    def fn(x, w):
        return torch.nn.functional.dropout(x * w, 0.5)

    def run(call):
        torch.manual_seed(3)
        found = []
        for _ in range(6):
            y = call(torch.ones(50), w)
            found.append((y.detach(), *torch.autograd.grad(y.sum(), w)))
        return found, torch.get_rng_state()

    w = torch.randn(50, requires_grad=True)
    got = run(compiled(fn))
    burnish.reset()
    want = run(burnish.compile(fn, fullgraph=True))
    torch.testing.assert_close(got, want)
    assert engine.captures == 2


@pytest.mark.parametrize("which", [0, 1])
def test_unrecordable_programs_run_without_a_cuda_graph(engine, reasons, which):
    original, captures = engine.capture, []

    def capture(run, memory=None):
        captures.append(1)
        if len(captures) > which:
            raise RuntimeError("operation not permitted when stream is capturing")
        return original(run, memory)

    engine.capture = capture
    net, other = twins()
    run = compiled(net)
    for _ in range(6):
        x = torch.randn(5, 6)
        run(x).square().sum().backward()
        other(x).square().sum().backward()
        same_gradients(net, other)
    assert len(captures) == which + 1 and len(reasons) == 1 and "not permitted" in reasons[0]


def test_backward_in_another_stream_ends_it(engine, reasons):
    net, other = twins()
    run = compiled(net)
    warm(run, net)
    x = torch.randn(5, 6)
    y = run(x).square().sum()
    engine.at = 1
    y.backward()
    other(x).square().sum().backward()
    same_gradients(net, other)
    assert reasons == ["its backward runs in another stream than its forward"]


def test_checkpointing_runs_eagerly_and_regions_that_write_are_a_reason(engine, reasons):
    class Region(nn.Module):
        def __init__(self):
            super().__init__()
            # A bias, or a sum of squares, would have a gradient of zero through the normalisation: only its rounding.
            self.inner = nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4))

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False).sin()

    net, other = twins(Region)
    exact = copy.deepcopy(other).double()
    run = compiled(net)
    for _ in range(5):
        x = torch.randn(5, 6)
        run(x).sum().backward()
        other(x).sum().backward()
        exact(x.double()).sum().backward()
    gradients, eagers, wanted = (
        torch.cat([p.grad.double().flatten() for p in model.parameters()]) for model in (net, other, exact)
    )
    rounding = torch.finfo(torch.float32).eps * wanted.norm()
    assert (gradients - wanted).norm() <= 2 * max((eagers - wanted).norm(), rounding)
    torch.testing.assert_close(list(net.buffers()), list(other.buffers()))
    assert engine.captures == 0 and "again" in reasons[0]


class Heads(nn.Module):
    """A loss and the tensor it is computed from, as models of Transformers return them."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        logits = self.net(x)
        return (logits - 1).square().sum(), logits, logits[:, 0]


def test_results_that_other_results_depend_on_are_recorded(engine, reasons):
    """Autograd sees several nodes. Each has its own backward, which is recorded when it has run once."""
    net, other = twins(Heads)
    run = compiled(net)
    for k in range(7):
        x = torch.randn(5, 6)
        for model, fn in ((net, run), (other, other)):
            loss, logits, column = fn(x)
            logits.retain_grad()
            (loss + column.sum() if k == 5 else loss).backward()
            model.seen = loss.detach(), logits.grad
        torch.testing.assert_close(net.seen, other.seen)
        same_gradients(net, other)
        net.zero_grad(), other.zero_grad()
    assert engine.captures == 1 + 2 and engine.replays == 5 + 4 + 4 and not reasons


def test_a_piece_whose_backward_never_comes(engine):
    """The next replay waits for every piece that may still run."""
    net, other = twins(Heads)
    run = compiled(net)
    for _ in range(4):
        loss, logits, _ = run(torch.randn(5, 6))
        loss.backward()
        net.zero_grad()
    x, y = torch.randn(5, 6), torch.randn(5, 6)
    loss, logits, _ = run(x)
    del loss
    replays = engine.replays
    later = run(y)[1]  # without a graph: `logits` may run backward
    assert engine.replays == replays
    logits.square().sum().backward()
    later.square().sum().backward()
    for each in (x, y):
        other(each)[1].square().sum().backward()
    same_gradients(net, other)
    del logits, later
    gc.collect()
    run(x)
    assert engine.replays > replays


def test_users_write_into_a_result_before_backward(engine):
    """Backward reads it, as a backward without a graph does."""
    net, other = twins(Heads)
    run, plain = compiled(net), burnish.compile(other, fullgraph=True)
    for _ in range(6):
        x = torch.randn(5, 6)
        for fn in (run, plain):
            loss, logits, _ = fn(x)
            logits.data.mul_(2)
            loss.backward()
        same_gradients(net, other)
    assert engine.replays
