"""Nodes with a graph for backends of others: checkpoints, and functions given to ``wrap``."""

import functools

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._higher_order_ops.wrap import wrap
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import checkpoint

import burnish


class Counter:
    """A backend that keeps the graphs it gets."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward

    def targets(self):
        return [node.target for gm in self.graphs for node in gm.graph.nodes if node.op == "call_function"]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def agrees(fn, make, backend):
    """Results, gradients and arguments are as in eager in three calls."""
    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for k in range(3):
        found = []
        for function in (fn, compiled):
            torch.manual_seed(k)
            args = make()
            results = [x for x in torch.utils._pytree.tree_leaves(function(*args)) if isinstance(x, torch.Tensor)]
            sum(x.square().sum() for x in results if x.requires_grad).backward()
            found.append((results, [x.grad for x in args if x.grad is not None]))
        torch.testing.assert_close(found[1], found[0])


def sine(x, w):
    return torch.sin(x @ w)


def two_results(x, w):
    h = x @ w
    return {"h": h, "more": [h.sin(), x, 3]}


def with_writes(x, w):
    y = x @ w
    y[0].mul_(2)
    y.relu_()
    return y.sin()


def inside_another(x, w):
    return checkpoint(sine, x, w, use_reentrant=False).tanh()


@pytest.mark.parametrize("function", [sine, two_results, with_writes, inside_another])
@pytest.mark.parametrize("backend", [Counter, lambda: "aot_eager"], ids=["own", "aot_eager"])
def test_a_checkpoint_is_a_node(function, backend):
    given = backend()
    agrees(lambda x, w: checkpoint(function, x, w, use_reentrant=False), lambda: (leaf(3, 3), leaf(3, 3)), given)
    if isinstance(given, Counter):
        assert len(given.graphs) == 1
        assert given.targets().count(torch.ops.higher_order.tag_activation_checkpoint) == 1


def test_a_checkpoint_that_draws_random_numbers_is_no_node():
    given = Counter()
    agrees(
        lambda x: checkpoint(lambda t: torch.dropout(t.sin(), 0.5, True), x, use_reentrant=False),
        lambda: (leaf(8),),
        given,
    )
    assert torch.ops.higher_order.tag_activation_checkpoint not in given.targets()


def operators_of(backward):
    """A backend that splits forward from backward, and notes what backward computes."""

    def note(gm, example_inputs):
        backward.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
        return torch._functorch.aot_autograd.make_boxed_func(gm.forward)

    def as_is(gm, example_inputs):
        return torch._functorch.aot_autograd.make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=as_is, bw_compiler=note, partition_fn=min_cut_rematerialization_partition)


@pytest.mark.parametrize("saved", [[], [torch.ops.aten.mm.default]], ids=["none", "products"])
def test_compilers_of_others_compute_a_checkpoint_again(saved):
    backward = []
    contexts = functools.partial(torch_checkpoint.create_selective_checkpoint_contexts, saved)

    def fn(x, w):
        return checkpoint(sine, x, w, use_reentrant=False, context_fn=contexts)

    agrees(fn, lambda: (leaf(3, 3), leaf(3, 3)), operators_of(backward))
    assert backward[0].count(torch.ops.aten.mm.default) == (2 if saved else 3)


def test_a_wrapped_function_is_a_node():
    given = Counter()
    agrees(lambda x, y: wrap(lambda t: {"sum": t.sin() + y}, x), lambda: (leaf(3), leaf(3)), given)
    assert given.targets()[0] is torch.ops.higher_order.wrap


def test_values_that_leave_a_wrapped_function_by_other_ways():
    def fn(x):
        kept = []

        def inner(t):
            nonlocal x
            kept.append(t.sin())
            x = t.exp()
            return t.cos()

        return wrap(inner, x) + kept[0] + x

    agrees(fn, lambda: (leaf(3),), Counter())


def test_an_error_in_a_wrapped_function_is_caught():
    def raises(t):
        t.sin()
        raise ValueError

    def fn(x):
        y = x * 2
        try:
            wrap(raises, y)
        except ValueError:
            y = y + 1
        return wrap(torch.cos, y) * y

    agrees(fn, lambda: (leaf(3),), Counter())


def test_a_number_leaves_a_wrapped_function():
    def fn(x):
        y, total = wrap(lambda t: (t.sin(), t.sum().item()), x.detach())
        return (x * total).sum(), x + y

    agrees(fn, lambda: (leaf(3),), Counter())


def without_dead_code(gm, example_inputs):
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm.forward


def asserts(t):
    torch._assert_async(t.sum() > 0, "negative")
    return t * 2


def draws(t):
    return torch.rand(2) * t


@pytest.mark.parametrize(
    "call",
    [lambda x: wrap(asserts, x), lambda x: wrap(draws, x), lambda x: checkpoint(asserts, x, use_reentrant=False)],
)
def test_effects_of_a_function_whose_result_nobody_uses(call):
    def fn(x):
        call(x)
        return x + 1

    def seen(function):
        torch.manual_seed(0)
        found = []
        for x in (torch.ones(2), torch.ones(2), -torch.ones(2)):
            try:
                found.append(function(x).tolist())
            except RuntimeError as error:
                found.append(str(error))
            found.append(torch.rand(1).item())
        return found

    assert seen(burnish.compile(fn, backend=without_dead_code, fullgraph=True)) == seen(fn)


@pytest.mark.parametrize("policy", [[torch.ops.aten.mm.default], lambda ctx, op, *args, **kwargs: False])
def test_a_policy_that_is_a_function_is_not_given_to_others(policy):
    given = Counter()
    contexts = functools.partial(torch_checkpoint.create_selective_checkpoint_contexts, policy)
    agrees(
        lambda x, w: checkpoint(sine, x, w, use_reentrant=False, context_fn=contexts),
        lambda: (leaf(3, 3), leaf(3, 3)),
        given,
    )
    assert (torch.ops.higher_order.tag_activation_checkpoint in given.targets()) is isinstance(policy, list)
