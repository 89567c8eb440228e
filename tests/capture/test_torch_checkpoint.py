"""Activation checkpointing in both modes: the forward runs again in backward, with its random numbers and its dtype.

Without reentry it is part of the graph. What a checkpointed function does besides computing happens in backward again.
"""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import burnish
from burnish.errors import Unsupported

from .caller_programs import program_with_caller
from .harness import program


def train(model):
    def caller(fn, x):
        model.zero_grad()
        out = fn(x)
        out.sum().backward()
        return out, x.grad, [p.grad for p in model.parameters()]

    return caller


def block():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))


def leaf():
    return torch.randn(2, 3, requires_grad=True)


@program_with_caller(breaks=0)
def test_checkpoint_without_reentry():
    model = block()

    def fn(x):
        return checkpoint(model, x, use_reentrant=False).sin()

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_checkpoint_with_reentry():
    model = block()

    def fn(x):
        return checkpoint(model, x, use_reentrant=True).sin()

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_checkpoints_with_reentry_and_several_results():
    model = block()

    def part(x, factor, nothing):
        y = model(x) * factor
        return y, y > 0, y.sum(-1)

    def fn(x):
        for _ in range(2):
            y, mask, total = checkpoint(part, x, 2, None, use_reentrant=True)
            x = x + (y * mask).sum() + total.mean()
        return x

    return fn, train(model), lambda i: (leaf(),)


def asks_for_the_mode(model, x, h):
    return model(x) * (2 if torch.is_grad_enabled() else 3)


def asks_for_the_flag(model, x, h):
    y = model(x)
    return y * (2 if y.requires_grad else 3)


def reads_a_value(model, x, h):
    return model(x) + h


def returns_a_constant(model, x, h):
    return model(x), torch.ones(3)


def returns_its_argument(model, x, h):
    return model(x), x


@pytest.mark.parametrize(
    "part", [asks_for_the_mode, asks_for_the_flag, reads_a_value, returns_a_constant, returns_its_argument]
)
def test_what_reentry_changes_runs_as_it_is(part):
    """Both runs of such a checkpoint see other things than one run with gradients would."""

    def make():
        model = block()

        def fn(x):
            h = x.sin()
            made = checkpoint(lambda y: part(model, y, h), x * 1, use_reentrant=True)
            return made[0] * made[1].sum() if isinstance(made, tuple) else made

        return fn, train(model), lambda i: (leaf(),)

    program_with_caller(make)()
    model = block()
    with pytest.raises(Unsupported, match="B203"):
        burnish.compile(
            lambda x, h: checkpoint(lambda y: part(model, y, h), x * 1, use_reentrant=True),
            backend="eager",
            fullgraph=True,
        )(leaf(), leaf() * 1)


@program_with_caller(breaks=0)
def test_reentry_reads_values_without_a_history():
    """As position embeddings: inside of a tuple, or from around the function."""
    model = block()

    def fn(x):
        tables = (torch.arange(3.0).sin(), torch.arange(3.0).cos())
        mask = tables[0] > 0
        return checkpoint(lambda y, pair: (model(y) * pair[0] + pair[1]) * mask, x, tables, use_reentrant=True)

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_reentry_without_an_argument_that_requires_gradients():
    model = block()

    def fn(x):
        return checkpoint(model, x, use_reentrant=True).sin()

    def caller(call, x):
        out = call(x)
        return out, out.requires_grad

    return fn, caller, lambda i: (leaf().detach(),)


@program_with_caller(breaks=0)
def test_checkpoint_switched_by_a_flag_between_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.save_memory = block(), False

        def forward(self, x):
            if self.save_memory and self.training:
                return checkpoint(self.body, x, use_reentrant=False)
            return self.body(x)

    model = Model()

    def caller(fn, x, save, training):
        model.save_memory = save
        model.train(training)
        return train(model)(fn, x)

    calls = [(False, True), (True, True), (True, False), (False, True), (True, True)]
    return model, caller, [(leaf(), *c) for c in calls]


@program_with_caller(breaks=0)
def test_dropout_repeats_its_mask():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def fn(x):
        return checkpoint(model, x, use_reentrant=False)

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller
def test_random_state_is_not_preserved_on_request():
    def noisy(x):
        return x * torch.rand(2, 3)

    def fn(x, keep):
        return checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=keep)

    def caller(fn, x, keep):
        out = fn(x, keep)
        out.sum().backward()
        return out, x.grad

    return fn, caller, [(leaf(), k) for k in (True, False, True, False)]


@program_with_caller
def test_forward_is_counted_twice():
    count = []

    def counted(x):
        count.append(torch.is_grad_enabled())
        return x.sin().cos()

    def fn(x):
        return checkpoint(counted, x, use_reentrant=False)

    def caller(fn, x):
        out = fn(x)
        before = len(count)
        out.sum().backward()
        return out, before, list(count)

    return fn, caller, lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_sequential_in_segments():
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])

    def fn(x):
        return checkpoint_sequential(model, 2, x, use_reentrant=False)

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_keyword_arguments_and_several_results():
    def part(x, y, *, scale=1.0):
        return x * y * scale, (x + y).sin()

    def fn(x, y, scale):
        a, b = checkpoint(part, x, y, scale=scale, use_reentrant=False)
        return a + b

    def caller(fn, x, y, scale):
        fn(x, y, scale).sum().backward()
        return x.grad, y.grad

    return fn, caller, [(leaf(), leaf(), s) for s in (1.0, 2.0, 1.0)]


@program_with_caller(breaks=0)
def test_nested_checkpoints():
    inner, outer = block(), block()
    model = nn.ModuleList([inner, outer])

    def deep(x):
        return outer(checkpoint(inner, x, use_reentrant=False)).tanh()

    def fn(x):
        return checkpoint(deep, x, use_reentrant=False)

    return fn, train(model), lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_autocast_is_remembered_for_the_second_forward():
    model = block()

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return checkpoint(model, x, use_reentrant=False).float()

    return fn, train(model), lambda i: (leaf(),)


@program(breaks=0)
def test_backward_inside():
    weight = torch.randn(3, requires_grad=True)

    def fn(x):
        loss = checkpoint(lambda v: (v * weight).sin(), x, use_reentrant=False).sum()
        loss.backward()
        grad = weight.grad
        weight.grad = None
        return loss, grad

    return fn, lambda i: (leaf(),), weight


@program(breaks=0)
def test_without_gradients_it_is_a_plain_call():
    model = block()

    def fn(x):
        with torch.no_grad():
            return checkpoint(model, x, use_reentrant=False), checkpoint(model, x, use_reentrant=False).requires_grad

    return fn, lambda i: (leaf(),)


# ---- what the function does besides computing


def trained(fn, model):
    """Forward, and backward twice: what is computed again then is computed twice again."""

    def caller(call, x):
        model.zero_grad()
        out = call(x)
        out.sum().backward(retain_graph=True)
        out.sum().backward()
        return out, x.grad, [p.grad.clone() for p in model.parameters()], [b.clone() for b in model.buffers()]

    return fn, caller, lambda i: (torch.randn(8, 3, requires_grad=True),), model


@program_with_caller(breaks=0)
def test_running_statistics_are_updated_when_the_forward_runs_again():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    return trained(lambda x: checkpoint(model, x, use_reentrant=False), model)


class Counts(nn.Module):
    def __init__(self, is_last):
        super().__init__()
        self.linear, self.is_last = nn.Linear(3, 3), is_last
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if self.is_last:
            y = self.linear(x).sin() + 1
            self.count.add_(1)
            return y
        self.count.add_(1)
        return self.linear(x).sin() * self.count


@program_with_caller(breaks=0)
def test_a_buffer_written_after_all_is_saved_is_not_written_again():
    model = Counts(True)
    return trained(lambda x: checkpoint(model, x, use_reentrant=False), model)


@program_with_caller(breaks=0)
def test_recomputation_sees_the_current_buffers():
    model = Counts(False)
    return trained(lambda x: checkpoint(model, checkpoint(model, x, use_reentrant=False), use_reentrant=False), model)


@program_with_caller
def test_attributes_are_counted_up_again():
    model = nn.Linear(3, 3)
    model.calls = 0

    def counted(x):
        model.calls += 1
        return model(x).sin()

    def fn(x):
        return checkpoint(counted, x, use_reentrant=False) * model.calls

    def caller(call, x):
        call(x).sum().backward()
        return x.grad, model.calls

    return fn, caller, lambda i: (leaf(),)


@program_with_caller
def test_it_prints_again():
    def loud(x):
        print("computing")
        return x.sin().cos()

    def caller(call, x):
        call(x).sum().backward()
        return x.grad

    return lambda x: checkpoint(loud, x, use_reentrant=False), caller, lambda i: (leaf(),)


@program_with_caller
def test_a_list_from_outside_grows_again():
    def fn(x):
        seen = []

        def part(v):
            seen.append(len(seen))
            return v.sin().cos()

        return checkpoint(part, x, use_reentrant=False), seen

    def caller(call, x):
        out, seen = call(x)
        out.sum().backward()
        return x.grad, seen

    return fn, caller, lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_what_the_function_makes_itself_it_may_change():
    def part(x, **options):
        scale = options.pop("scale")
        terms, table = [], {}
        for k in range(3):
            terms.append(x.sin() * k)
            table[k] = terms[-1].cos()
        options["more"] = 1
        return sum(terms) * scale + sum(table.values())

    def caller(call, x):
        call(x).sum().backward()
        return x.grad

    return lambda x: checkpoint(part, x, use_reentrant=False, scale=2.0), caller, lambda i: (leaf(),)


@program_with_caller
def test_a_break_inside_puts_everything_back_first():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))

    def fn(x):
        def part(v):
            y = model(v)
            return y.sin() if y.sum() > 0 else y.cos()

        return checkpoint(part, x * 2, use_reentrant=False) + torch.rand(3)

    def caller(call, x):
        model.zero_grad()
        out = call(x)
        out.sum().backward()
        return out, x.grad, [b.clone() for b in model.buffers()]

    return fn, caller, lambda i: (torch.randn(8, 3, requires_grad=True),), model


@program_with_caller
def test_an_error_inside_is_raised_by_the_call():
    def bad(x):
        y = x.sin()
        raise ValueError(f"for {len(y)} rows")

    def fn(x):
        try:
            return checkpoint(bad, x, use_reentrant=False)
        except ValueError as error:
            return x * len(str(error))

    def caller(call, x):
        call(x).sum().backward()
        return x.grad

    return fn, caller, lambda i: (leaf(),)


@program_with_caller
def test_arguments_written_to_before_backward_are_an_error():
    def caller(call, x):
        out, given = call(x)
        given.add_(1)
        try:
            out.sum().backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return "no error"

    def fn(x):
        given = x * 2
        return checkpoint(lambda v: v.sin().cos(), given, use_reentrant=False), given.detach()

    return fn, caller, lambda i: (leaf(),)


@pytest.mark.skipif(
    not hasattr(torch.utils.checkpoint, "_checkpoint_impl"), reason="checkpoint is not a decorator in this torch"
)
@program_with_caller(breaks=0)
def test_the_decorator_checkpoints():
    @checkpoint(use_reentrant=False)
    def part(x):
        return x.sin().cos()

    def caller(call, x):
        call(x).sum().backward()
        return x.grad

    return lambda x: part(x) * 2, caller, lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_it_may_be_called_through_a_partial_with_keywords():
    model = block()
    run = functools.partial(checkpoint, use_reentrant=False)
    return lambda x: run(functools.partial(model.forward), x), train(model), lambda i: (leaf(),)


@program_with_caller(breaks=0)
def test_hooks_for_saved_tensors_around_it_see_the_inputs_alone():
    # Torch 2.11 saves one more, without elements.
    saves_an_empty_tensor = not hasattr(torch._C._autograd, "_make_saved_tensor")
    model = block()
    packed = []

    def caller(call, x):
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
            out = call(x)
        out.sum().backward()
        return x.grad, [shape for shape in packed if shape.numel() or not saves_an_empty_tensor]

    return lambda x: checkpoint(model, x, use_reentrant=False).sin(), caller, lambda i: (leaf(),)


@pytest.mark.parametrize(
    "options",
    [
        {"use_reentrant": None},
        {"use_reentrant": False, "early_stop": False},
        {"use_reentrant": False, "debug": True},
        {"use_reentrant": False, "context_fn": lambda: (torch.no_grad(), torch.no_grad())},
    ],
)
def test_what_is_not_part_of_the_graph_is_named(options):
    def fn(x):
        return checkpoint(torch.sin, x, **options)

    with pytest.raises(Unsupported, match=f"B203.*|{next(reversed(options))}"):
        burnish.compile(fn, backend="eager", fullgraph=True)(leaf())


def test_a_write_inside_is_named():
    seen = []

    def part(x):
        seen.append(1)
        return x.sin()

    def fn(x):
        return checkpoint(part, x, use_reentrant=False)

    with pytest.raises(Unsupported, match="a change of a list in it, which happens again in backward"):
        burnish.compile(fn, backend="eager", fullgraph=True)(leaf())


def test_a_backend_that_knows_no_regions_gets_the_function_as_it_is():
    graphs = []

    def collect(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    model, x = block(), leaf()

    def fn(x):
        return checkpoint(model, x, use_reentrant=False).sin()

    compiled = burnish.compile(fn, backend=collect, fullgraph=True)
    for _ in range(3):
        found = torch.autograd.grad(compiled(x).sum(), [x, *model.parameters()])
        expected = torch.autograd.grad(fn(x).sum(), [x, *model.parameters()])
        torch.testing.assert_close(found, expected)
    assert len(graphs) == 1


def test_a_backend_that_knows_no_regions_gets_none_that_writes():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def fn(x):
        return checkpoint(model, x, use_reentrant=False)

    with pytest.raises(Unsupported, match="a change of a tensor in it"):
        burnish.compile(fn, backend=lambda gm, example_inputs: gm.forward, fullgraph=True)(leaf())
