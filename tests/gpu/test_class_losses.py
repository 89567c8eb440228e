"""Cross entropy on GPUs: computed in loops, and nothing as large as the logits is stored but their gradient."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")

import burnish
from burnish.lower.pipeline import lower
from burnish.ops import target_record

from ..recorded_events import recorded
from . import simulated_gpu
from .simulated_gpu import interpreted

ROWS, CLASSES = 7, 53


def run(fn, *inputs):
    loss = fn(*inputs)
    loss.float().sum().backward()
    return [loss.detach(), *(x.grad for x in inputs if x.requires_grad)]


def fresh(inputs, dtype=None):
    return [x.detach().to(dtype if dtype and x.is_floating_point() else x.dtype).requires_grad_(x.requires_grad)
            for x in inputs]  # fmt: skip


def near(fn, *inputs, fewest=2):
    """At most twice as far from float64 as eager, forward and gradients; returns the saved tensors' shapes."""
    truth, want = run(fn, *fresh(inputs, torch.float64)), run(fn, *fresh(inputs))
    with interpreted() as ran:
        compiled = burnish.compile(fn, fullgraph=True)
        run(compiled, *fresh(inputs))
        ran.clear()
        got = run(compiled, *fresh(inputs))
        assert len(ran) >= fewest, ran
    for a, b, c in zip(got, want, truth, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape and torch.equal(a.isnan(), b.isnan())
        error, eager = ((x.double() - c).nan_to_num().abs().max() for x in (a, b))
        assert error <= 2 * eager + 1e-6 * (1 + c.nan_to_num().abs().max()), (error, eager)


def logits(dtype=torch.float32, rows=ROWS, classes=CLASSES):
    return (torch.randn(rows, classes) * 3).to(dtype).requires_grad_()


def labels(rows=ROWS, classes=CLASSES):
    found = torch.randint(classes, (rows,))
    found[1] = -100
    return found


@pytest.mark.parametrize("has_checks", [True, False])
def test_a_loss_is_in_loops_for_each_target_whose_kernels_check_indices(has_checks):
    graph = torch.fx.symbolic_trace(lambda x, y: (F.cross_entropy(x, y),))
    target = replace(target_record.CPU, name="toy", has_checks=has_checks)
    with target_record.substitute_target("cpu", target), torch.no_grad():
        lowered = lower(graph, [logits().detach(), labels()])
    assert ("aten.nll_loss_forward.default" in {node.op.name for node in lowered.graph.nodes}) is has_checks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_and_gradient_are_as_near_to_float64_as_eagers(dtype, reduction):
    near(lambda x, y: F.cross_entropy(x, y, reduction=reduction), logits(dtype), labels())


def test_weights_and_smoothed_labels_and_another_label_to_ignore():
    weight = torch.rand(CLASSES) + 0.1
    near(lambda x, y, w: F.cross_entropy(x, y, w), logits(), labels(), weight)
    near(lambda x, y, w: F.cross_entropy(x, y, w, reduction="none"), logits(), labels(), weight)
    near(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.2), logits(), labels())
    near(lambda x, y: F.cross_entropy(x, y, ignore_index=3), logits(), labels().clamp(min=3))


def test_rows_without_a_label_that_counts_have_eagers_loss():
    ignored = torch.full((ROWS,), -100)
    near(F.cross_entropy, logits(), ignored)
    near(lambda x, y: F.cross_entropy(x, y, reduction="sum"), logits(), ignored)


def test_long_rows_and_infinite_logits():
    near(F.cross_entropy, logits(rows=3, classes=9001), labels(3, 9001))
    x = logits().detach()
    x[0, 5], x[2, 7] = -torch.inf, torch.inf
    near(F.cross_entropy, x.requires_grad_(), labels().clamp(0, 4))


def test_logits_that_are_computed_and_those_of_shifted_tokens():
    near(lambda x, y: F.cross_entropy(x.float() * 2 - 1, y), logits(torch.bfloat16), labels())

    def shifted(x, y):
        return F.cross_entropy(x.view(2, 4, -1)[:, :-1].float().reshape(6, -1), y.view(2, 4)[:, 1:].reshape(-1))

    near(shifted, logits(torch.bfloat16, rows=8), labels(8))
    near(lambda x, y: F.nll_loss(x.log_softmax(-1), y), logits(), labels())
    near(lambda x, y: F.nll_loss(x * 2, y), logits(), labels())


def test_images_and_single_rows_stay_with_the_library():
    near(lambda x, y: F.cross_entropy(x.view(1, CLASSES, ROWS), y.view(1, -1)), logits(), labels(), fewest=0)
    near(lambda x, y: F.cross_entropy(x[0], y[0]), logits(), labels(), fewest=0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, CLASSES, bias=False, dtype=torch.bfloat16)

    def forward(self, x, y):
        return F.cross_entropy(self.layer(x).float(), y)


def test_a_model_keeps_its_logits_and_numbers_of_each_row_for_backward():
    model, x, y = Model(), torch.randn(ROWS, 16, dtype=torch.bfloat16), labels()
    want = torch.autograd.grad(model(x, y), model.parameters())
    with interpreted() as ran, recorded("loops", datum="plan") as plans:
        compiled = burnish.compile(model, fullgraph=True)
        compiled(x, y).backward()
        model.zero_grad()
        ran.clear()
        compiled(x, y).backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], list(want), rtol=0.02, atol=1e-3)
    text = "\n".join(simulated_gpu.texts)
    assert text.count(f"f32[{ROWS}, {CLASSES}]") == 0, text
    large = [
        kernel.dtypes[buffer]
        for plan in plans
        for step in plan.steps
        if type(step).__name__ == "Launch"
        for kernel in [step.kernel]
        for buffer, value in enumerate(step.buffers)
        if buffer in kernel.stored and value.shape == (ROWS, CLASSES)
    ]
    assert set(large) == {"bf16"} and len(large) == len([p for p in plans if p]) // 2, large


def test_a_wrong_label_is_an_error_where_the_loop_loads_its_element():
    x, y = logits(), labels()
    with interpreted():
        compiled = burnish.compile(F.cross_entropy, fullgraph=True)
        compiled(x, y)
        y[2] = CLASSES
        with pytest.raises(Exception, match="out of (range|bounds)"):
            compiled(x, y)
