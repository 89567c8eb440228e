"""Checks of call orders: threads, streams, captures and CUDA graphs, as in users' programs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish.settings import patch

from .place import Place


def in_thread(run: Callable[[], Any]) -> Any:
    """The result of `run` in a new thread, which has no CUDA context yet. Its error is raised here."""
    found: list[Any] = []

    def target() -> None:
        try:
            found.append((run(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result


def loss_fn(x: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(x.sin(), -1) * x).sum()


def equal(place: Place, got: torch.Tensor, want: torch.Tensor) -> None:
    if place.computes:
        place.wait()
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def leaves(place: Place, count: int) -> list[torch.Tensor]:
    return [place.randn(64, 100).requires_grad_() for _ in range(count)]


def eager_gradients(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.autograd.grad(loss_fn(x), x)[0] for x in inputs]


def forwards_first(place: Place) -> None:
    """Several forwards before the first backward."""
    inputs, run = leaves(place, 5), burnish.compile(loss_fn, fullgraph=True)
    losses = [run(x) for x in inputs]
    for loss in losses:
        loss.backward()  # the first in this process: eager's would give its thread a context
    for x, grad in zip(inputs, eager_gradients(inputs), strict=True):
        equal(place, x.grad, grad)


def backward_in_a_thread(place: Place) -> None:
    inputs, run = leaves(place, 4), burnish.compile(loss_fn, fullgraph=True)
    for x in inputs:
        loss = run(x)
        in_thread(loss.backward)
    for x, grad in zip(inputs, eager_gradients(inputs), strict=True):
        equal(place, x.grad, grad)


def first_call_in_a_thread(place: Place) -> None:
    (x,) = leaves(place, 1)
    want = loss_fn(x.detach())
    run = burnish.compile(lambda x: loss_fn(x), fullgraph=True)
    with torch.no_grad():
        equal(place, in_thread(lambda: run(x.detach())), want)
        for _ in range(3):  # compiled before, in another thread
            equal(place, in_thread(lambda: run(x.detach())), want)
            equal(place, run(x.detach()), want)


def launch_in_a_bare_thread(place: Place) -> None:
    """A thread that has not called CUDA, with memory that the allocator already has."""
    x, run = place.randn(64, 100), burnish.compile(lambda x: x.sin() * 2 + 1, fullgraph=True)
    want = x.sin() * 2 + 1
    with torch.no_grad():
        for _ in range(3):
            run(x)
        for _ in range(4):
            equal(place, in_thread(lambda: run(x)), want)


def many_threads(place: Place) -> None:
    x, run = place.randn(64, 100), burnish.compile(lambda x: (x.sin() * 2, torch.softmax(x, -1)), fullgraph=True)
    want, found = (x.sin() * 2, torch.softmax(x, -1)), []

    def work() -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            found.append([run(x) for _ in range(20)])
            torch.cuda.current_stream().synchronize()

    place.wait()
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6, f"{6 - len(found)} threads raised an error"
    for result in sum(found, []):
        for part, wanted in zip(result, want, strict=True):
            equal(place, part, wanted)


def two_streams(place: Place) -> None:
    x, run = place.randn(1000, 100), burnish.compile(lambda x: torch.softmax(x.sin(), -1), fullgraph=True)
    want, found = torch.softmax(x.sin(), -1), []
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    place.wait()
    with torch.no_grad():
        for _ in range(4):
            with torch.cuda.stream(first):
                y = run(x)
            second.wait_stream(first)
            with torch.cuda.stream(second):
                found += [y, run(x)]
            first.wait_stream(second)
    place.wait()
    for got in found:
        equal(place, got, want)


def capture_by_the_user(place: Place) -> None:
    """A function compiled before, then the first call of another one, inside the user's own recording."""
    x = place.randn(64, 100)
    warm = burnish.compile(lambda x: torch.softmax(x, -1) + 1, fullgraph=True)
    cold = burnish.compile(lambda x: torch.log_softmax(x, -1) * 3, fullgraph=True)
    with torch.no_grad():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                warm(x)
        place.wait()
        for run, eager in ((warm, lambda x: torch.softmax(x, -1) + 1), (cold, lambda x: torch.log_softmax(x, -1) * 3)):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                got = run(x)
                again = run(x)
            x.copy_(place.randn(64, 100))
            graph.replay()
            equal(place, got, eager(x))
            equal(place, again, eager(x))
            equal(place, run(x), eager(x))


def capture_that_fails(place: Place) -> None:
    """The user's recording ends with an error; so does one that waits for the GPU. Later calls still work."""
    x, run = place.randn(64, 100), burnish.compile(lambda x: x.sin() * 2 + 1, fullgraph=True)
    want = x.sin() * 2 + 1
    with torch.no_grad():
        for _ in range(3):
            run(x)
        for break_it in (lambda: 1 / 0, torch.cuda.synchronize):
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    run(x)
                    break_it()
            except (ZeroDivisionError, RuntimeError):
                pass
            else:
                raise AssertionError("the recording did not fail")
            for _ in range(3):
                equal(place, run(x), want)


class Trained(nn.Module):
    """Returns its loss and its logits, like models of libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layers(x)
        return F.cross_entropy(logits, y), logits


def graph_of_inference(place: Place) -> None:
    with torch.no_grad():
        run = burnish.compile(lambda x, w: F.gelu(x @ w).softmax(-1), mode="reduce-overhead", fullgraph=True)
        w = place.randn(32, 64)
        for call in range(8):
            x = place.randn(16, 32)
            equal(place, run(x, w), F.gelu(x @ w).softmax(-1))
            place.figure(calls=call + 1)


def graph_of_training(place: Place) -> None:
    """The results are (loss, logits); only the loss is differentiated, and the logits are kept."""
    torch.manual_seed(0)
    eager, ours = Trained().to(place.device), Trained().to(place.device)
    ours.load_state_dict(eager.state_dict())
    run = burnish.compile(ours, mode="reduce-overhead", fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (eager, ours)]
    kept = []
    for call in range(10):
        x, y = place.randn(24, 16), place.randint(10, 24)
        for model, optimizer in zip((eager, run), optimizers, strict=True):
            loss, logits = model(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append((loss.detach(), logits.detach()))
        place.figure(calls=call + 1)
    for want, got in zip(kept[::2], kept[1::2], strict=True):
        equal(place, torch.stack([got[0], got[1].sum()]), torch.stack([want[0], want[1].sum()]))
    for want, got in zip(eager.parameters(), ours.parameters(), strict=True):
        equal(place, got, want)


def two_forwards_of_a_graph(place: Place) -> None:
    """The second runs without the graph, whose memory the first one's backward still needs."""
    inputs, run = leaves(place, 6), burnish.compile(loss_fn, mode="reduce-overhead", fullgraph=True)
    want = eager_gradients(inputs)
    for pair in zip(inputs[::2], inputs[1::2], strict=True):
        for loss in [run(x) for x in pair]:
            loss.backward()
    for x, grad in zip(inputs, want, strict=True):
        equal(place, x.grad, grad)


def as_users_run_it(place: Place) -> None:
    """Default settings: a contest with eager, workers that compile, internal errors that fall back."""
    x, fn = place.randn(256, 512), lambda x: torch.softmax(x.sin() * 2, -1).cos()
    with patch(never_slower=True), torch.no_grad():
        run = burnish.compile(fn)
        for _ in range(60):
            got = run(x)
        equal(place, got, fn(x))
    model = Trained().to(place.device)
    with patch(never_slower=True):
        run = burnish.compile(model)
        for _ in range(40):
            loss, _ = run(place.randn(24, 16), place.randint(10, 24))
            loss.backward()


def autocast_with_a_scaler(place: Place) -> None:
    model = Trained().to(place.device)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-3), torch.amp.GradScaler(place.device)
    run = burnish.compile(model)
    for _ in range(4):
        with torch.autocast(place.device, torch.float16):
            loss, _ = run(place.randn(24, 16), place.randint(10, 24))
        scaler.scale(loss).backward()
        if place.computes:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        assert not place.computes or bool(loss.isfinite()), loss
