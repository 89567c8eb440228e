"""Memory of GPU programs: values share buffers within a call, and backward stores results over saved values."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")

import burnish
from bench import pretend

from ..forked_programs import ProgramServer
from ..recorded_events import recorded
from .simulated_gpu import interpreted


def softmaxes(x):
    for k in range(6):
        x = torch.softmax(x.transpose(0, 1) * (k + 1.0), -1)
    return x


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 200, bias=False)

    def forward(self, x, y):
        return F.cross_entropy(self.linear(x), y)


def plans_of(run):
    with recorded("loops", datum="plan") as plans:
        run()
    return [plan for plan in plans if plan is not None]


def test_a_chain_of_kernels_needs_few_buffers_and_is_right():
    x = torch.randn(64, 64)
    with interpreted():
        compiled = burnish.compile(softmaxes, fullgraph=True)
        plans = plans_of(lambda: compiled(x))
        torch.testing.assert_close(compiled(x), softmaxes(x))
    (plan,) = plans
    made = [
        step.buffers[at] for step in plan.steps for at in step.kernel.stored if step.buffers[at].type.numel == x.numel()
    ]
    own = [value for value in made if value not in plan.in_place and value not in plan.in_output_buffer]
    assert len(made) >= 6 and len(own) <= 2, (made, own)


def test_backward_writes_gradients_over_saved_values_that_nothing_else_refers_to():
    model, x, y = Head(), torch.randn(32, 16, requires_grad=True), torch.randint(200, (32,))
    want = torch.autograd.grad(model(x, y), [x, model.linear.weight])
    with interpreted():
        compiled = burnish.compile(model, fullgraph=True)
        plans = plans_of(lambda: compiled(x, y))
        below = [below for plan in plans for below in plan.in_place.values() if below in plan.graph.inputs]
        assert any(value.shape == (32, 200) for value in below)
        for _ in range(2):
            loss = compiled(x, y)
            for keep in (True, True, False):
                got = torch.autograd.grad(loss, [x, model.linear.weight], retain_graph=keep)
                torch.testing.assert_close(got, want)
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(loss, [x])


def test_a_saved_value_that_is_also_a_result_stays_as_it_is():
    def fn(x, w):
        h = x @ w
        return h, h.sin() * 2

    x, w = torch.randn(32, 32, requires_grad=True), torch.randn(32, 32)
    want = torch.autograd.grad(fn(x, w)[1].sum(), x)
    with interpreted():
        compiled = burnish.compile(fn, fullgraph=True)
        compiled(x, w)
        h, y = compiled(x, w)
        before = h.detach().clone()
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x), want)
        assert torch.equal(h, before)


PEAK = """
import torch, burnish
from bench.pretend import leave
from torch import nn
from torch.nn import functional as F
torch.backends.cuda.enable_cudnn_sdp(False)
{program}
run = burnish.compile(fn, mode="default")
for _ in range(4):
    for leaf in leaves: leaf.grad = None
    torch.cuda.reset_peak_memory_stats()
    begun = torch.cuda.memory_allocated()
    run(*args).backward()
    peak = torch.cuda.max_memory_allocated() - begun
print("MB", peak / 2**20)
leave()
"""

LOSS = """
fn = nn.Sequential(nn.Linear(64, 8192, bias=False)).to("cuda", torch.bfloat16)
x, y = torch.randn(4096, 64, device="cuda", dtype=torch.bfloat16), torch.zeros(4096, dtype=torch.int64, device="cuda")
head, args = fn, (x, y)
leaves = list(head.parameters())
fn = lambda x, y: F.cross_entropy(head(x).float(), y)
"""

PERCEPTRON = """
model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 256)).to("cuda", torch.bfloat16)
args, leaves = (torch.randn(4096, 256, device="cuda", dtype=torch.bfloat16),), list(model.parameters())
fn = lambda x: model(x).float().square().mean()
"""


@pytest.fixture(scope="module")
def server():
    if (why := pretend.why_not()) is not None:  # asked here, for it compiles the GPU
        pytest.skip(why)
    made = ProgramServer("import torch, burnish, bench.pretend", pretend.environment())
    yield made
    made.close()


def peak(server, program):
    ran = server.run(PEAK.format(program=program))
    assert ran.returncode == 0, ran.stderr
    return float(ran.stdout.split("MB")[-1])


def test_a_loss_over_a_vocabulary_needs_the_logits_and_no_more(server):
    assert peak(server, LOSS) < 1.1 * 4096 * 8192 * 2 / 2**20


def test_products_that_free_memory_run_first(server):
    """Two activations of 32 MB are saved; the gradient of one is allocated when the other is free."""
    assert peak(server, PERCEPTRON) < 2.5 * 4096 * 4096 * 2 / 2**20
