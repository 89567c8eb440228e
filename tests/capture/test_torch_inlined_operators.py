"""Higher-order operators that run one function: the function is part of the graph, for every backend."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import hints_wrap, strict_mode, wrap
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.out_dtype import out_dtype

import burnish

from .harness import program
from .operator_backend import operators

OPERATORS = torch.ops.higher_order
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@program(breaks=0)
def test_a_wrapped_function_writes_and_returns_structures():
    log = []

    def fn(x):
        count, twice = 0, x * 2

        def inner(tree, shift=1):
            nonlocal count
            count += 1
            log.append(count)
            return {"sum": tree["x"][0] + twice + shift}, count

        return wrap.wrap(inner, {"x": (x, 3)}, shift=2), count

    return fn, [(X,), (X + 1,), (X - 1,)], log


@program(breaks=0)
def test_a_wrapped_module_in_a_wrapped_function():
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    return (lambda x: wrap.wrap(lambda t: wrap.wrap(layer, t).relu(), x)), [(X,), (X + 1,), (X * 2,)]


@program
def test_a_wrapped_function_that_branches_on_data():
    def fn(x):
        return wrap.wrap(lambda t: t * 2 if t.sum() > 0 else t * 3, x) + 1

    return fn, [(X,), (X + 1,), (X - 1,)]


@program(breaks=0)
def test_switches_around_a_function():
    def fn(x):
        without = OPERATORS.wrap_with_set_grad_enabled(False, lambda t: t * 2, x)
        halved = OPERATORS.wrap_with_autocast("cpu", torch.bfloat16, True, True, lambda a: a @ a.t(), x)
        return without, halved, torch.is_grad_enabled(), without.requires_grad

    return fn, [(X.clone().requires_grad_(),), ((X + 1).requires_grad_(),), ((X * 2).requires_grad_(),)]


@program(breaks=0)
def test_a_wrapper_that_takes_the_function():
    def fn(x):
        return wrap.dynamo_bypassing_wrapper(lambda f: lambda t: f(t) + 1, torch.sin, x)

    return fn, [(X,), (X + 1,), (X * 2,)]


def test_arguments_that_an_operator_refuses():
    compiled = burnish.compile(
        lambda x: hints_wrap.hints_wrapper(lambda t: t, (x, "text"), {}, hints={}), backend="eager"
    )
    for _ in range(3):
        with pytest.raises(RuntimeError, match="must be a tuple of tensors"):
            compiled(X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "burnish", pytest.param(operators, id="operators")])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: hints_wrap.hints_wrapper(lambda t: t.sin() + 1, (x,), {}, hints={"kind": 1}),
        lambda x: strict_mode(lambda t: t.sin() + 1, (x,)),
        lambda x: OPERATORS.strict_mode(lambda t: t.sin() + 1, (x,)),
        lambda x: wrap.wrap(torch.sin, x),
    ],
    ids=["hints", "strict", "strict operator", "wrap"],
)
def test_every_backend_gets_one_graph_of_operators(fn, backend):
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for x in (X, X + 1, X * 2):
        torch.testing.assert_close(compiled(x), x.sin() + (0 if torch.equal(fn(x), x.sin()) else 1))
    assert burnish.explain(fn)(X).graph_count == 1


@pytest.mark.parametrize("backend", ["eager", "burnish", pytest.param(operators, id="operators")])
def test_products_of_another_type(backend):
    def fn(x, y):
        return out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)

    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for shift in range(3):
        x, y = (torch.arange(9, dtype=torch.int8).reshape(3, 3) * 9 + k + shift for k in range(2))
        assert torch.equal(compiled(x, y), x.int() @ y.int())


def test_operators_without_gradients_raise_their_own_error():
    def fn(x):
        return out_dtype(torch.ops.aten.mm.default, torch.float32, x, x)

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="[Aa]utograd"):
            compiled(torch.ones(2, 2, requires_grad=True)).sum().backward()


def test_an_operator_that_eager_takes_graphs_for_only():
    """Torch says so: outside of compiled code, it must be given a graph."""

    class Doubled(BaseHOP):
        def __init__(self):
            super().__init__("burnish_test_doubled")

    doubled = Doubled()
    compiled = burnish.compile(lambda x: doubled(lambda t: (t * 2,), x, kind="test"), backend="eager", fullgraph=True)
    for x in (X, X + 1, X * 2):
        assert torch.equal(compiled(x)[0], x * 2)
