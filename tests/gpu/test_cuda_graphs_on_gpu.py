"""CUDA graphs on a real GPU; skipped without one."""

import pytest
import torch
from torch import nn

import burnish
from burnish.runtime.cuda_graphs.cuda_graph_recording import TorchGraphs
from burnish.runtime.cuda_graphs.cuda_graph_replay import CudaGraphProgram
from burnish.runtime.linking import cuda_module_loader

from ..recorded_events import recorded

pytestmark = pytest.mark.skipif(cuda_module_loader.why_not() is not None, reason="needs a GPU")

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def reasons():
    with recorded("runtime.cuda_graphs", datum="why") as found:
        yield found


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.GELU(), nn.Dropout(0.25), nn.Linear(128, 10)).to(
        DEVICE
    )


def trained(wrap, steps=12):
    model = net()
    run = wrap(model)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(
            run(torch.randn(32, 64, device=DEVICE)), torch.randint(0, 10, (32,), device=DEVICE)
        )
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.detach())
    return losses, dict(model.state_dict()), torch.cuda.get_rng_state()


def test_training_with_dropout_is_the_same_without_graphs(reasons):
    got = trained(lambda model: burnish.compile(model, mode="reduce-overhead"))
    burnish.reset()
    want = trained(burnish.compile)
    torch.testing.assert_close(got, want)
    assert not reasons


def test_calls_in_another_stream_and_two_streams_at_once():
    run = burnish.compile(lambda x: torch.softmax(x @ x, -1), mode="reduce-overhead", fullgraph=True)
    x = torch.randn(256, 256, device=DEVICE)
    want = torch.softmax(x @ x, -1)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    found = []
    for _ in range(6):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(run(x))
    torch.cuda.synchronize()
    for out in found:
        torch.testing.assert_close(out, want)


def test_after_a_recording_that_failed_the_process_goes_on():
    """Calls that the check before a recording would refuse are let through to it."""
    engine = TorchGraphs(DEVICE)
    before = torch.cuda.current_stream()
    x = torch.randn(64, device=DEVICE)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            engine.capture(lambda: x * torch.rand_like(x).sum().item())
        assert torch.cuda.current_stream() == before
        torch.rand(4, device=DEVICE)
        torch.cuda.empty_cache()
        y = torch.empty(1 << 20, device=DEVICE).fill_(2)
        assert y.sum().item() == 2 << 20
    call = CudaGraphProgram(lambda x: (x * 2,), [], [], engine, "a graph")
    for _ in range(4):
        x = torch.randn(64, device=DEVICE)
        assert torch.equal(call(x)[0], x * 2)
    assert len(call.graphs.recorded) == 1


def test_waiting_for_the_gpu_is_a_reason(reasons):
    call = CudaGraphProgram(lambda x: (x[x > 0],), [], [], TorchGraphs(DEVICE), "a graph")
    for _ in range(3):
        x = torch.randn(64, device=DEVICE)
        assert torch.equal(call(x)[0], x[x > 0])
    assert len(reasons) == 1
