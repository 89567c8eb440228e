"""Gradients through compiled code are eager's: after writes, with retained graphs, hooks and double backward."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import burnish
from burnish import events
from burnish.settings import patch

from ..recorded_events import recorded
from ..seeding import seed


class Graphs:
    """While it is entered: how many graphs were planned (a backward counts for itself), and why others were refused."""

    def __enter__(self):
        self.compiled, self.refused = 0, []
        self.stop = events.subscribe(self.note, ["loops", "lower.refused"])
        return self

    def __exit__(self, *_):
        self.stop()

    def note(self, event):
        if event.kind == "loops":
            self.compiled += 1
        elif event.kind == "lower.refused":
            self.refused.append(event.data["text"])


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def tensors_of(tree):
    return [x for x in (tree if isinstance(tree, (tuple, list)) else [tree]) if isinstance(x, torch.Tensor)]


def outcome(fn, given, weights):
    """Outputs and the gradients of all leaves, of a weighted sum of the outputs that require them."""
    given = copy.deepcopy(given)
    outputs = fn(*given)
    found = [(x.detach().clone(), x.requires_grad, x.is_leaf and x.requires_grad) for x in tensors_of(outputs)]
    needed = [x for x in tensors_of(outputs) if x.requires_grad]
    torch.autograd.backward(needed, [w[: x.numel()].view(x.shape).to(x.dtype) for x, w in zip(needed, weights)])
    leaves = [x.grad for x in given if isinstance(x, torch.Tensor)]
    return found, leaves, [x.detach() if isinstance(x, torch.Tensor) else x for x in given]


def equal_gradients(fn, *given, calls=3, compiled=2):
    """`compiled`: how many graphs must have been compiled, forward and backward, none of them refused."""
    burnish.reset()
    weights = [torch.randn(4096) for _ in range(8)]
    with patch(never_slower=False, on_error="raise", eager_random=True), Graphs() as graphs:
        run = burnish.compile(fn)
        for call in range(calls):
            seed(call)
            want = outcome(fn, given, weights)
            seed(call)
            got = outcome(run, given, weights)
            for (x, needs, is_leaf), (y, needed, was_leaf) in zip(want[0], got[0], strict=True):
                assert (needs, is_leaf) == (needed, was_leaf)
                torch.testing.assert_close(y, x, equal_nan=True)
            for x, y in zip(want[1], got[1], strict=True):
                assert (x is None) == (y is None)
                if x is not None:
                    torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5)
                    assert y.stride() == x.stride()
            for x, y in zip(want[2], got[2], strict=True):
                if isinstance(x, torch.Tensor):
                    torch.testing.assert_close(y, x)
    assert graphs.compiled >= compiled and not graphs.refused, graphs.refused


PROGRAMS = {
    "a product": (lambda x, w: x @ w, leaf(4, 6), leaf(6, 3)),
    "an input without gradients": (lambda x, w: (x @ w).relu(), torch.randn(4, 6), leaf(6, 3)),
    "a chain of functions": (lambda x: (x.sin() * x.exp()).tanh().sum(0), leaf(4, 6)),
    "several outputs": (lambda x, w: (x @ w, (x * 2).sum(), x.mean(0)), leaf(4, 6), leaf(6, 3)),
    "an output that needs none": (lambda x: (x * 2, x.argmax(1), x.detach() * 3), leaf(4, 6)),
    "an output twice": (lambda x: (y := x * 2, y), leaf(4, 6)),
    "an input as output": (lambda x, w: (x, x * w), leaf(4, 6), leaf(6)),
    "a view of an input": (lambda x: (x[1:], x.t(), x * 2), leaf(4, 6)),
    "a view of a value": (lambda x: (x.exp().t(),), leaf(4, 6)),
    "an unused input": (lambda x, w: x * 2, leaf(4, 6), leaf(3)),
    "an input used twice": (lambda x: x * x.sum() + x, leaf(4, 6)),
    "in place on a value": (lambda x: (x * 2).add_(x).relu_(), leaf(4, 6)),
    "in place on a view of a value": (lambda x: (y := x * 2, y[1].mul_(3), y)[2], leaf(4, 6)),
    "rows put into a new tensor": (lambda x: (y := torch.zeros(4, 6), y[1:3].copy_(x[1:3] * 2), y)[2], leaf(4, 6)),
    "detach": (lambda x: x * x.detach(), leaf(4, 6)),
    "softmax": (lambda x: F.softmax(x, -1) @ F.log_softmax(x, -1).t(), leaf(4, 6)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), leaf(4, 6), leaf(6), leaf(6)),
    "layer norm over two": (lambda x, w: F.layer_norm(x, (5, 6), w), leaf(4, 5, 6), leaf(5, 6)),
    "rms norm": (lambda x, w: F.rms_norm(x, (6,), w), leaf(4, 6), leaf(6)),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), leaf(4, 6, 5), leaf(6), leaf(6)),
    "batch norm": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True),
        leaf(4, 6, 5, 5),
        torch.zeros(6),
        torch.ones(6),
        leaf(6),
        leaf(6),
    ),
    "batch norm in evaluation": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        leaf(4, 6, 5, 5),
        torch.randn(6),
        torch.rand(6) + 0.5,
        leaf(6),
        leaf(6),
    ),
    "instance norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), leaf(4, 6, 5, 5), leaf(6), leaf(6)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), leaf(2, 3, 8, 8), leaf(4, 3, 3, 3), leaf(4)),
    "pools": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), leaf(2, 3, 8, 8)),
    "embedding": (lambda i, w: F.embedding(i, w).sum(1), torch.tensor([[1, 2], [2, 0]]), leaf(4, 6)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        leaf(2, 2, 8, 16),
        leaf(2, 2, 8, 16),
        leaf(2, 2, 8, 16),
    ),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), leaf(4, 6), torch.tensor([0, 5, 2, 1])),
    "expanded and repeated": (lambda x: x.expand(4, 6) * x.repeat(4, 1).cumsum(0), leaf(1, 6)),
    "cat, stack and chunk": (
        lambda x, y: torch.cat([x, y]).chunk(2, 1)[1] + torch.stack([x, y]).sum(),
        leaf(4, 6),
        leaf(4, 6),
    ),
    "indexed": (lambda x: x[[0, 2, 2]] * x[:, 1:2][:3], leaf(4, 6)),
    "where and masks": (lambda x: torch.where(x > 0, x, x * 0.1).masked_fill(x > 1, 0.0), leaf(4, 6)),
    "of double precision": (lambda x: (x @ x.t()).logsumexp(0), leaf(4, 6, dtype=torch.float64)),
    "a result of one element": (lambda x: x.square().mean(), leaf(4, 6)),
    "of a tensor without dimensions": (lambda x, s: x * s, leaf(4, 6), leaf()),
    "of nothing": (lambda x: x[:0].sum() + x.sum(), leaf(4, 6)),
    "without gradients inside": (lambda x: no_grad_inside(x), leaf(4, 6)),
}


def no_grad_inside(x):
    with torch.no_grad():
        scale = x.abs().max()
    return x / scale


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_eagers(name):
    fn, *given = PROGRAMS[name]
    equal_gradients(fn, *given)


def train(model, x, steps=3, compiled=True):
    burnish.reset()
    model = copy.deepcopy(model)
    run = burnish.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with patch(never_slower=False, on_error="raise"):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model


MODELS = {
    "a perceptron": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), (5, 8)),
    "a convolution net": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 2),
        ),
        (4, 3, 12, 12),
    ),
    "a transformer": lambda: (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (2, 6, 16)),
    "tied weights": lambda: (Tied(), (5, 8)),
}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).tanh())


@pytest.mark.parametrize("name", MODELS)
def test_training_goes_as_in_eager(name):
    model, shape = MODELS[name]()
    x = torch.randn(shape)
    want, trained = train(model, x, compiled=False)
    got, other = train(model, x)
    assert got == pytest.approx(want, rel=1e-4)
    for (key, a), b in zip(trained.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def compiled_on(fn, *given):
    """Compiled, after two calls: the first one of all runs eagerly."""
    with patch(never_slower=False, on_error="raise"):
        run = burnish.compile(fn)
        for _ in range(2):
            run(*given)
    return run


def test_backward_twice_is_an_error_unless_the_graph_is_retained():
    x = leaf(4)
    run = compiled_on(lambda x: (x.exp() * x).sum(), x)
    loss = run(x)
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_an_output_without_derivative_leaves_the_others_theirs():
    def fn(w, x):
        whole = w // 2
        return (w * whole.detach() + x).sum(), whole, whole.long() + 1

    w, x = leaf(4, 4), leaf(4, 4)
    with recorded("lower.refused", datum="text") as refused:
        run = compiled_on(fn, w, x)
        loss, whole, _ = run(w, x)
    torch.testing.assert_close(torch.autograd.grad(loss, (w, x)), torch.autograd.grad(fn(w, x)[0], (w, x)))
    assert whole.requires_grad and not refused
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
        (run(w, x)[0] + run(w, x)[1].sum()).backward()


def test_zeros_that_the_program_returns_may_be_written_to_before_backward():
    def fn(x):
        y = x * 1
        y.zero_()
        return y

    x = leaf(3, 4)
    made = compiled_on(fn, x)(x)
    made.add_(1).sum().backward()
    assert torch.equal(x.grad, torch.zeros(3, 4))


def test_gradients_add_up_over_calls():
    w = leaf(4, 4)
    run = compiled_on(lambda x, w: (x @ w).square().sum(), torch.ones(4, 4), w)
    w.grad = None
    for k in range(3):
        run(torch.full((4, 4), float(k)), w).backward()
    got, w.grad = w.grad, None
    for k in range(3):
        (torch.full((4, 4), float(k)) @ w).square().sum().backward()
    torch.testing.assert_close(got, w.grad)


def test_gradients_of_gradients_are_eagers():
    def fn(x, w):
        return (x @ w).tanh().pow(3).sum()

    x, w = leaf(4, 6), leaf(6, 3)
    found = []
    for run in (fn, compiled_on(fn, x, w)):
        (gx,) = torch.autograd.grad(run(x, w), x, create_graph=True)
        found.append((gx, *torch.autograd.grad(gx.square().sum(), (x, w))))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


def test_a_saved_input_that_is_written_to_is_an_error_as_in_eager():
    def fn(x, y):
        return (x * y).sum()

    for run in (fn, compiled_on(fn, torch.ones(3), leaf(3))):
        x, y = torch.ones(3), leaf(3)
        loss = run(x, y)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_saved_output_that_is_written_to_is_an_error_as_in_eager():
    def fn(x):
        return x.exp()

    for run in (fn, compiled_on(fn, leaf(3))):
        y = run(leaf(3))
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_outputs_may_be_written_to_where_eager_allows_it():
    def fn(x):
        return (x * 2).t(), x.sum(0)

    for run in (fn, compiled_on(fn, leaf(3, 2))):
        x = leaf(3, 2)
        turned, total = run(x)
        turned.mul_(3)
        total += 1
        (turned.sum() + total.sum()).backward()
        torch.testing.assert_close(x.grad, torch.full((3, 2), 7.0))


def test_hooks_see_gradients():
    seen = []
    w = leaf(4)
    w.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    run = compiled_on(lambda x, w: (x * w).sum(), torch.ones(4), w)
    w.grad, seen[:] = None, []
    run(torch.full((4,), 3.0), w).backward()
    torch.testing.assert_close(seen, [torch.full((4,), 3.0), torch.full((4,), 6.0)])


def test_a_frozen_parameter_that_thaws_is_seen():
    model = nn.Linear(4, 4)
    model.weight.requires_grad_(False)
    run = burnish.compile(model)
    x = torch.randn(2, 4)
    with patch(never_slower=False, on_error="raise"):
        for needs in (False, True, False, True):
            model.weight.requires_grad_(needs)
            for _ in range(2):
                model.zero_grad()
                run(x).sum().backward()
                assert (model.weight.grad is not None) == needs
                assert model.bias.grad is not None


def test_autocast_trains_as_in_eager():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    x = torch.randn(8, 16)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().square().mean()

    found = []
    for run in (fn, compiled_on(fn, x)):
        model.zero_grad()
        run(x).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)


def test_dropout_takes_the_same_elements_in_backward():
    run = compiled_on(lambda x: F.dropout(x, 0.5), leaf(64))
    for _ in range(3):
        x = leaf(64)
        y = run(x)
        y.sum().backward()
        kept = (y != 0).float() * 2
        torch.testing.assert_close(x.grad, kept)
        assert 8 < kept.count_nonzero() < 56


def test_saved_tensors_are_freed_with_the_graph():
    run = compiled_on(lambda x: (x.exp() @ x).relu(), leaf(8, 8))
    x = leaf(8, 8)
    y = run(x)
    node = y.grad_fn
    kept = weakref.ref(node.kept[0]) if node.kept else None
    y.sum().backward()
    assert node.kept is None
    gc.collect()
    assert kept is None or kept() is None


def test_anomaly_mode_works():
    run = compiled_on(lambda x: x.sqrt().sum(), leaf(3).detach().abs().requires_grad_())
    x = torch.zeros(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        run(x).backward()
    assert torch.isinf(x.grad).all()


def test_an_output_without_gradients_keeps_none_where_an_unused_output_does():
    x = leaf(4)
    run = compiled_on(lambda x: (x * 2, x * 3), x)
    first, _ = run(x)
    x.grad = None
    first.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 2.0))


def test_tangents_of_any_layout_are_taken():
    def fn(x):
        return x.exp()

    x = leaf(4, 6)
    run = compiled_on(fn, x)
    for tangent in (torch.ones(4, 6), torch.ones(6, 4).t(), torch.ones(1, 1).expand(4, 6), torch.ones(8, 6)[::2]):
        (got,) = torch.autograd.grad(run(x), x, tangent)
        (want,) = torch.autograd.grad(fn(x), x, tangent)
        torch.testing.assert_close(got, want)


def test_inference_after_training_and_back():
    model = nn.Linear(4, 4)
    run = burnish.compile(model)
    x = torch.randn(2, 4)
    with patch(never_slower=False, on_error="raise"):
        for _ in range(3):
            run(x).sum().backward()
            with torch.no_grad():
                torch.testing.assert_close(run(x), model(x))
            assert run(x).requires_grad


def test_the_step_of_an_optimizer_needs_no_gradients_of_its_own():
    w, g = leaf(8, 8), torch.randn(8, 8)

    def step(w, g):
        with torch.no_grad():
            w.sub_(g @ w, alpha=0.1)
        return (w.detach() @ g).sum()

    run = compiled_on(step, w, g)
    for _ in range(3):
        other = w.detach().clone().requires_grad_()
        want = step(other, g)
        got = run(w, g)
        assert got.requires_grad == want.requires_grad
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(w, other)


def test_checkpointed_blocks_train_as_in_eager():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    x = leaf(4, 8)
    checkpoint(block, x, use_reentrant=False).square().sum().backward()
    want = [p.grad.clone() for p in block.parameters()]
    run = burnish.compile(block)
    with patch(on_error="raise"):
        for reentrant in (False, True, False, False, True):
            block.zero_grad()
            checkpoint(run, x, use_reentrant=reentrant).square().sum().backward()
            torch.testing.assert_close([p.grad for p in block.parameters()], want)


def test_the_slower_one_of_forward_and_backward_together_is_dropped():
    with recorded("runtime.contest", datum="kept") as decisions:
        run = burnish.compile(lambda x: (x.exp() * x.sin()).sum())
        with patch(never_slower=True, on_error="raise"):
            for _ in range(12):
                x = leaf(64, 64)
                run(x).backward()
                torch.testing.assert_close(x.grad, x.exp() * x.sin() + x.exp() * x.cos())
    assert len(decisions) == 1 and decisions[0] in ("eager", "compiled")


def test_a_loss_returned_beside_itself_detached_keeps_its_gradient():
    def fn(x, weight):
        loss = nn.functional.cross_entropy(x @ weight, torch.tensor([0, 2]))
        return loss, loss.detach(), loss.detach() * 2

    compiled = burnish.compile(fn)
    weight = torch.randn(3, 3, requires_grad=True)
    for _ in range(4):
        x = torch.randn(2, 3)
        loss, detached, twice = compiled(x, weight)
        assert loss.requires_grad and not detached.requires_grad and not twice.requires_grad
        assert detached.data_ptr() == loss.data_ptr() and torch.equal(detached * 2, twice)
        (wanted,) = torch.autograd.grad(fn(x, weight)[0], weight)
        torch.testing.assert_close(torch.autograd.grad(loss, weight)[0], wanted)


def test_pooling_to_one_pixel_channels_last_is_compiled_with_its_gradient():
    x = torch.randn(4, 6, 8, 8).contiguous(memory_format=torch.channels_last)
    found = []
    with Graphs() as graphs, patch(never_slower=False, on_error="raise"):
        run = burnish.compile(lambda x: F.adaptive_avg_pool2d(x.sin(), 1).exp())
        for fn in (run, lambda x: F.adaptive_avg_pool2d(x.sin(), 1).exp(), run):
            given = x.clone(memory_format=torch.preserve_format).requires_grad_()
            y = fn(given)
            y.square().sum().backward()
            found.append((y.detach(), given.grad))
    assert not graphs.refused
    for y, gradient in found:
        torch.testing.assert_close(y, found[1][0])
        torch.testing.assert_close(gradient, found[1][1])
        assert gradient.stride() == found[1][1].stride()


def test_as_strided_of_a_part_with_an_offset_is_eagers():
    def fn(x):
        first, second = torch.unsafe_split(x * 2, 2)
        return second.as_strided((2, 4), (4, 1), 0).sum() + first.sum() * 0

    x = torch.arange(16.0).reshape(4, 4)
    with patch(never_slower=False):
        run = burnish.compile(fn)
        assert [run(x) for _ in range(2)] == [fn(x)] * 2


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), (2,), (1, 2)])
def test_parameters_without_effect_on_the_loss_have_no_gradient(used):
    """None, as in eager: zeros would make an optimizer with weight decay move the weight."""

    def fn(x, a, b, c):
        y = (x * a).sin()
        return y, y.detach() * b.exp(), (x * b).sign() + c[:1]

    given = [leaf(3) for _ in range(4)]
    with patch(never_slower=False, on_error="raise"), Graphs() as graphs:
        run = burnish.compile(fn)
        for _ in range(3):
            found, want = (
                torch.autograd.grad(sum(f(*given)[k].sum() for k in used), given, allow_unused=True) for f in (run, fn)
            )
            assert [x is None for x in found] == [x is None for x in want]
            torch.testing.assert_close(*[[x for x in g if x is not None] for g in (found, want)])
    assert graphs.compiled


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (1, 2), (0, 2)])
def test_infinite_derivatives_of_unused_outputs_do_not_count(used):
    """Not 0 * inf: eager does not run the backward of an output that is not used."""

    def fn(x, w):
        y = x * w
        return y.sqrt(), y.exp() * 2, x + w

    with patch(never_slower=False, on_error="raise"), Graphs() as graphs:
        run = burnish.compile(fn)
        for rows in (3, 3, 4, 5):
            given = [torch.zeros(rows, requires_grad=True), torch.ones(rows, requires_grad=True)]
            found, want = (torch.autograd.grad(sum(f(*given)[k].sum() for k in used), given) for f in (run, fn))
            torch.testing.assert_close(found, want, equal_nan=True)
    assert graphs.compiled


def test_unused_output_has_no_gradient_two_graphs_away():
    """Autograd walks through the first graph as well, with no gradient for its only output."""

    def fn(x, w, v):
        a = torch.sin(x * w)
        burnish.graph_break()
        return v * 2, a * a

    x, w, v = torch.randn(4), leaf(4), leaf(4)
    with patch(never_slower=False, on_error="raise"), Graphs() as graphs:
        run = burnish.compile(fn)
        for _ in range(3):
            w.grad = v.grad = None
            run(x, w, v)[0].sum().backward()
            assert w.grad is None and torch.equal(v.grad, torch.full((4,), 2.0))
        run(x, w, v)[1].sum().backward()
        assert torch.equal(w.grad, 2 * torch.sin(x * w.detach()) * torch.cos(x * w.detach()) * x)
    assert graphs.compiled == 5  # the second graph has a backward for each output
