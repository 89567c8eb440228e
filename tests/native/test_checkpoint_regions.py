"""Checkpoint regions inside compiled graphs: little is saved, the rest is recomputed as in eager."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import burnish
from burnish.ir.alias_analysis import storage_of
from burnish.lower.passes.drop_recompute_barriers import drop_recompute_barriers
from burnish.runtime.eager import eager_activation_checkpointing
from burnish.schedule.plan_steps import Call
from burnish.settings import patch

from ..ir.parse_graph import parse_graph
from ..recorded_events import recorded
from .compare_training import alike, trained

region = functools.partial(checkpoint, use_reentrant=False)


class Counts(nn.Module):
    """Writes to a buffer that decides what it computes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x).sin() * (1 + self.count / 8)


class Attention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm, self.inner, self.dropout = nn.LayerNorm(8), nn.Linear(8, 24), dropout

    def forward(self, x, mask=None):
        q, k, v = self.inner(self.norm(x)).chunk(3, -1)
        found = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], mask, self.dropout)
        return x + found[0], mask


def blocks(*extra):
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), *extra, nn.Linear(32, 8))


def attended(model, x):
    x, mask = region(model[0], x, mask=torch.ones(16, 16, dtype=torch.bool).tril())
    return region(model[1], x, mask=mask)[0]


def with_autocast(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return region(model, x).float()


def nested(model, x):
    return region(lambda v: model[3](region(lambda w: model[2](model[1](w)), model[0](v))), x)


def given_constants(model, x):
    return region(lambda v, scale: model(v + torch.arange(8.0)) * scale, x, torch.full((8,), 2.0))


PROGRAMS = {
    "one after the other": (lambda: nn.Sequential(blocks(), blocks()), lambda m, x: region(m[1], region(m[0], x))),
    "dropout": (
        lambda: nn.Sequential(blocks(nn.Dropout(0.5)), blocks(nn.Dropout(0.2))),
        lambda m, x: region(m[1], region(m[0], x)),
    ),
    "the same twice": (lambda: blocks(nn.Dropout(0.5)), lambda m, x: region(m, region(m, x)) + m(x)),
    "batch norm": (lambda: blocks(nn.BatchNorm1d(32), nn.Dropout(0.1)), region),
    "batch norm twice": (lambda: blocks(nn.BatchNorm1d(32)), lambda m, x: region(m, region(m, x)) + m(x)),
    "batch norm at the end": (lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), region),
    "a counter that is read": (Counts, lambda m, x: region(m, region(m, x))),
    "nested": (lambda: blocks(nn.Dropout(0.3)), nested),
    "attention": (lambda: nn.Sequential(Attention(), Attention()), attended),
    "autocast": (blocks, with_autocast),
    "other inputs": (blocks, given_constants),
    "a view as result": (lambda: nn.Linear(8, 8), lambda m, x: region(lambda v: m(v).sin().t(), x).t()),
    "an argument as result": (lambda: nn.Linear(8, 8), lambda m, x: sum(region(lambda v: (v, m(v).sin()), x * 2))),
    "without gradients inside": (blocks, lambda m, x: region(lambda v: m(v) * no_gradient(m, v), x)),
}


def no_gradient(model, x):
    with torch.no_grad():
        return model(x).sigmoid()


def training(name, is_whole, compiler):
    make, run = PROGRAMS[name]
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_of(x):
        return run(model, x).square().mean()

    return trained(loss_of, optimizer, is_whole, compiler), (model,)


@pytest.mark.parametrize("is_whole", [False, True], ids=["forward", "whole step"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_checkpointed_training_is_eager_s_in_one_graph(name, is_whole):
    seen = alike(
        lambda compiler: training(name, is_whole, compiler),
        lambda i: (torch.randn(16, 8, requires_grad=True),),
        steps=5,
    )
    # A step that finds gradients to clear is another one than the first.
    assert (seen.breaks, seen.given_up, seen.refused, seen.segments) == ([], [], [], 1 + is_whole)


@pytest.mark.falls_back("refused", only=r"dropout|batch norm|a counter that is read")
@pytest.mark.parametrize("name", ["dropout", "batch norm", "a counter that is read"])
def test_eager_regions_recompute_too(name):
    """Where the compiler cannot take the graph, and in the contest."""

    def build(compiler):
        step, parts = training(
            name,
            False,
            lambda f: compiler(
                lambda x: torch.view_as_real(
                    torch.view_as_complex(f(x).reshape(1, 1).expand(1, 2).contiguous()) * 1j
                ).sum()
            ),
        )
        return step, parts

    seen = alike(build, lambda i: (torch.randn(16, 8, requires_grad=True),), steps=3)
    assert seen.breaks == [] and seen.given_up == []


@pytest.mark.parametrize("never_slower", [False, True], ids=["compiled", "contest"])
def test_our_own_random_numbers_are_the_same_the_second_time(never_slower):
    model = nn.Dropout(0.5)
    with patch(never_slower=never_slower, on_error="raise"):
        compiled = burnish.compile(lambda x: region(lambda v: model(model(v * 1.5).sin()), x), fullgraph=True)
        for _ in range(12):
            x = torch.full((64, 8), 0.7, requires_grad=True)
            y = compiled(x)
            y.sum().backward()
            assert torch.equal(y != 0, x.grad != 0) and 0 < (y != 0).float().mean() < 0.5


def saved_bytes(loss, *known):
    """The bytes that backward holds besides inputs and parameters."""
    node = loss.grad_fn
    held = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for x in (*node.saved_tensors, *node.kept)
        if isinstance(x, torch.Tensor)
    }
    for x in known:
        held.pop(x.untyped_storage().data_ptr(), None)
    return sum(held.values())


@pytest.mark.parametrize("eager_random", [False, True])
def test_only_inputs_of_regions_are_saved(eager_random):
    model = nn.ModuleList(
        nn.Sequential(nn.Linear(8, 256), nn.GELU(), nn.Dropout(0.1 * (not eager_random)), nn.Linear(256, 8))
        for _ in range(4)
    )

    def loss_of(x, apply):
        for block in model:
            x = apply(block, x)
        return x.square().mean()

    x = torch.randn(64, 8, requires_grad=True)
    found = {}
    with patch(never_slower=False, on_error="raise", eager_random=eager_random):
        for apply in (region, lambda block, x: block(x)):
            compiled = burnish.compile(lambda x, apply=apply: loss_of(x, apply), fullgraph=True)
            for _ in range(2):
                loss = compiled(x)
                if hasattr(loss.grad_fn, "kept"):  # the first one is eager's, it was watched
                    found[apply] = saved_bytes(loss, x, *model.parameters())
                loss.backward()
    between = 64 * 8 * 4
    checkpointed, all_of_it = found.values()
    assert checkpointed <= 4 * between + 256 < 64 * 256 * 4 < all_of_it


def memory_of(plan):
    """Bytes of the arena, and of the largest set of results of calls that are held at once."""
    made, last = {}, {}
    for number, step in enumerate(plan.steps):
        read = step.node.operands if isinstance(step, Call) else getattr(step, "buffers", ())
        last.update((storage_of(value), number) for value in read)
        if isinstance(step, Call):
            made.update(
                (value, number)
                for value in step.node.results
                if value is not None and value not in plan.offsets and storage_of(value) is value
            )
    held = [
        sum(value.type.bytes for value, at in made.items() if at <= number <= last.get(value, at))
        for number in range(len(plan.steps))
    ]
    return plan.arena + max(held)


def test_a_whole_step_needs_less_memory_with_checkpoints():
    def plan_of(apply):
        torch.manual_seed(0)
        model = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 32)) for _ in range(6)
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            for block in model:
                x = apply(block, x)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            return loss

        with recorded("loops", datum="plan") as plans, patch(never_slower=False, on_error="raise", cache=False):
            compiled = burnish.compile(step, fullgraph=True)
            for _ in range(3):
                compiled(torch.randn(256, 32))
        return max(plans, key=lambda plan: len(plan.steps))

    burnish.reset()
    assert memory_of(plan_of(region)) < 0.6 * memory_of(plan_of(lambda block, x: block(x)))


def test_a_break_inside_leaves_the_call_to_eager():
    def build(compiler):
        model = blocks(nn.BatchNorm1d(32, momentum=None), nn.Dropout(0.5))  # its factor is a number that Python needs
        run = compiler(lambda x: region(model, x * 2).square().mean())

        def step(x):
            model.zero_grad()
            loss = run(x)
            loss.backward()
            return loss.detach(), x.grad

        return step, (model,)

    seen = alike(build, lambda i: (torch.randn(16, 8, requires_grad=True),), steps=3)
    assert (len(seen.breaks), seen.given_up, seen.refused) == (1, [], [])


def test_backward_may_run_twice():
    def build(compiler):
        model = blocks(nn.BatchNorm1d(32))
        run = compiler(lambda x: region(model, x).square().mean())

        def step(x):
            model.zero_grad()
            loss = run(x)
            loss.backward(retain_graph=True)
            loss.backward()
            return x.grad

        return step, (model,)

    seen = alike(build, lambda i: (torch.randn(16, 8, requires_grad=True),), steps=3)
    assert (seen.breaks, seen.refused) == ([], [])


def test_gradients_of_gradients_are_eager_s():
    def build(compiler):
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        run = compiler(lambda x: region(model, x).sum())

        def step(x):
            (gradient,) = torch.autograd.grad(run(x), x, create_graph=True)
            gradient.square().sum().backward()
            return x.grad

        return step, (model,)

    assert alike(build, lambda i: (torch.randn(4, 8, requires_grad=True),), steps=3).refused == []


def test_regions_of_symbolic_sizes():
    model = blocks(nn.Dropout(0.5))
    sizes = [4, 6, 9, 12, 5, 33]

    def build(compiler):
        run = compiler(lambda x: region(model, region(model, x)).square().mean())

        def step(x):
            model.zero_grad()
            loss = run(x)
            loss.backward()
            return loss.detach(), x.grad, [p.grad.clone() for p in model.parameters()]

        return step, ()

    seen = alike(build, lambda i: (torch.randn(sizes[i], 8, requires_grad=True),), steps=6)
    assert (seen.breaks, seen.refused, seen.segments) == ([], [], 2)


@pytest.mark.falls_back("refused")
def test_writes_that_may_not_be_repeated_run_eagerly():
    """Backward may start from one output alone, and then eager recomputes only the values that led to that one."""

    def build(compiler):
        one, other = (nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2))
        run = compiler(lambda x: (region(one, x).sum(), region(other, x).square().sum()))

        def step(x):
            run(x)[1].backward()
            return x.grad

        return step, (one, other)

    seen = alike(build, lambda i: (torch.randn(16, 8, requires_grad=True),), steps=3)
    assert len(seen.refused) == 1 and "once more where backward reaches it" in seen.refused[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_get_a_right_graph(backend):
    model, x = blocks(), torch.randn(16, 8, requires_grad=True)

    def fn(x):
        return region(model, x).square().mean()

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        found = torch.autograd.grad(compiled(x), [x, *model.parameters()])
        torch.testing.assert_close(found, torch.autograd.grad(fn(x), [x, *model.parameters()]))


def test_only_recomputed_values_wait_for_backward():
    graph = parse_graph("""
        graph(x: f32[4, 4], w: f32[4, 4])
          y = aten.sin.default x : f32[4, 4]
          g = linear y, w, None, None, None : f32[4, 4]
          h = aten.relu.default g : f32[4, 4]
          x1 = again y, h : f32[4, 4]
          y1 = aten.sin.default x1 : f32[4, 4]
          w1 = again w, None : f32[4, 4]
          z = linear y1, w1, None, None, None : f32[4, 4]
          return z, h
    """)
    nodes = [node.op.name for node in drop_recompute_barriers(graph).nodes]
    assert nodes == ["aten.sin.default", "linear", "aten.relu.default", "held", "aten.sin.default", "linear"]
    held = drop_recompute_barriers(graph).nodes[3]
    assert [value.node.op.name for value in held.args] == ["aten.sin.default", "linear"]


@pytest.mark.parametrize(
    "save", [eager_activation_checkpointing.SavedByNode, eager_activation_checkpointing.saved_tensor]
)
def test_a_tensor_is_saved_as_autograd_saves_it(save):
    """By torch, or where it (2.11, say) has no function for that, by a node of ours."""
    leaf = torch.randn(3, requires_grad=True)
    made, constant, written = leaf * 2, torch.randn(3), torch.randn(3)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        hooked = save(constant)
    assert [x.data_ptr() for x in packed] == [constant.data_ptr()] == [hooked.unpack().data_ptr()]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            kept = [save(x) for x in (leaf, made, constant)]
            assert kept[0].unpack() is leaf and kept[1].unpack() is made and kept[2].unpack() is constant
            assert made.grad_fn is kept[1].unpack().grad_fn
    saved = save(written)
    written.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.unpack()
