"""Custom backends find the same metadata in the nodes of a graph as with `torch.compile`."""

import operator

import pytest
import torch

import burnish


def graphs_of(fn, *args, calls=1, **options):
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    compiled = burnish.compile(fn, backend=backend, **options)
    for _ in range(calls):
        compiled(*args)
    return seen


def computed(gm):
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x).relu()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.sin(x)


def test_nodes_name_the_modules_that_made_them():
    net = Net()
    (gm,) = graphs_of(net, torch.ones(2, 3))
    linear, relu, _, _, sin = computed(gm)
    assert list(linear.meta["nn_module_stack"].values()) == [
        ("L['self'].blocks.0", Block),
        ("L['self'].blocks.0.inner", torch.nn.Linear),
    ]
    assert list(relu.meta["nn_module_stack"]) == [str(id(net.blocks[0]))] and "nn_module_stack" not in sin.meta
    assert linear.meta["source_fn_stack"] == [("linear", torch.nn.Linear)]
    assert relu.meta["source_fn_stack"] == [("relu", "relu")]
    assert sin.meta["source_fn_stack"] == [("sin", torch.sin)]


def test_module_reached_through_a_closure_has_a_path():
    block = Block()
    (gm,) = graphs_of(lambda x: block(x), torch.ones(2, 3))
    assert [path for path, _ in computed(gm)[0].meta["nn_module_stack"].values()] == ["L['block']", "L['block'].inner"]


def test_module_with_a_closure_over_self_is_named():
    class Scaled(torch.nn.Module):
        def forward(self, x):
            def scale(t):
                return t * self.factor

            return scale(x)

        factor = 3

    inner = Scaled()
    (gm,) = graphs_of(lambda x: inner(x), torch.ones(2))
    assert [kind for _, kind in computed(gm)[0].meta["nn_module_stack"].values()] == [Scaled]


def test_stack_trace_shows_all_lines():
    def inner(x):
        return x.sin()

    def outer(x):
        return inner(x)

    (gm,) = graphs_of(outer, torch.ones(2))
    trace = computed(gm)[0].meta["stack_trace"]
    assert trace.index("return inner(x)") < trace.index("return x.sin()") and trace.count("File") == 2


def test_example_values_describe_all_results():
    leaf = torch.ones(4, 3, requires_grad=True)
    (gm,) = graphs_of(lambda x: x.t().split(2)[0] @ x.double().float(), leaf)
    for node in gm.graph.nodes:
        if node.op != "output":
            value = node.meta["example_value"]
            parts = value if isinstance(value, tuple) else (value,)
            assert all(type(part).__name__ == "FakeTensor" for part in parts)
    first, *_, last = (node for node in gm.graph.nodes if node.op != "output")
    assert first.meta["example_value"].requires_grad and last.meta["example_value"].grad_fn is not None
    assert last.meta["example_value"].shape == (2, 3) and computed(gm)[0].meta["example_value"].stride() == (1, 3)


def test_example_values_leave_torchs_state_alone():
    def fn(x):
        with torch.no_grad():
            return torch.rand(3) + x

    for _ in range(2):
        torch.manual_seed(0)
        graphs_of(fn, torch.ones(3), calls=2)
        assert torch.is_grad_enabled()
        follows = torch.rand(1)
    torch.manual_seed(0)
    torch.rand(3), torch.rand(3)
    assert torch.equal(follows, torch.rand(1))


def test_example_values_hold_symbols_of_open_sizes():
    seen = []

    def backend(gm, example_inputs):
        seen.append(computed(gm)[0].meta["example_value"].shape[0])
        return gm.forward

    compiled = burnish.compile(lambda x: x * 2, backend=backend, dynamic=True)
    for size in (3, 4):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert isinstance(seen[-1], torch.SymInt)


x = torch.arange(1.0, 5.0).reshape(2, 2)
OPERATORS = [
    (lambda t: t + 1, operator.add),
    (lambda t: 1 + t, operator.add),
    (lambda t: t - t, operator.sub),
    (lambda t: 3 - t, operator.sub),
    (lambda t: t / 2, operator.truediv),
    (lambda t: 2 / t, operator.truediv),
    (lambda t: t // 2, operator.floordiv),
    (lambda t: t % 2, operator.mod),
    (lambda t: t**2, operator.pow),
    (lambda t: 2**t, operator.pow),
    (lambda t: t @ t, operator.matmul),
    (lambda t: -t, operator.neg),
    (lambda t: t > 1, operator.gt),
    (lambda t: t == 1, operator.eq),
    (lambda t: t[0], operator.getitem),
    (lambda t: t.add(1), "add"),
    (lambda t: torch.add(t, 1), torch.add),
    (lambda t: t.neg(), "neg"),
]


@pytest.mark.parametrize("at", range(len(OPERATORS)))
def test_operators_are_those_of_python(at):
    fn, target = OPERATORS[at]
    found = []

    def backend(gm, example_inputs):
        found.extend(node.target for node in computed(gm))
        return gm.forward

    compiled = burnish.compile(fn, backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))
    assert found == [target]


def test_assignments_are_operators_of_python():
    def fn(t):
        t = t.clone()
        t += 1
        t[0] = 2
        return t

    (gm,) = graphs_of(fn, x)
    assert [node.target for node in computed(gm)] == ["clone", operator.iadd, operator.setitem]


def test_operator_of_a_class_is_the_one_its_method_calls():
    class Wrapped:
        def __init__(self, t):
            self.t = t

        def __add__(self, other):
            return self.t.add(other)

    (gm,) = graphs_of(lambda t: Wrapped(t) + 1, x)
    assert [node.target for node in computed(gm)] == ["add"]


def test_backend_may_look_at_examples_to_rewrite():
    """Like a quantizing backend: it replaces products by their shapes and modules."""

    def backend(gm, example_inputs):
        for node in computed(gm):
            kinds = [kind for _, kind in node.meta.get("nn_module_stack", {}).values()]
            if node.target is torch.nn.functional.linear and kinds[-1] is torch.nn.Linear:
                assert node.args[0].meta["example_value"].shape[-1] == 3
                with gm.graph.inserting_after(node):
                    doubled = gm.graph.call_function(operator.mul, (node, 2))
                node.replace_all_uses_with(doubled, delete_user_cb=lambda user, made=doubled: user is not made)
        gm.recompile()
        return gm.forward

    linear = torch.nn.Linear(3, 2)
    compiled = burnish.compile(lambda t: linear(t) + 1, backend=backend)
    given = torch.randn(2, 3)
    compiled(given)
    torch.testing.assert_close(compiled(given), linear(given) * 2 + 1)
