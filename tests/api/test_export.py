"""`export`: one graph that computes what the function does, and a program whose state is unchanged afterwards."""

import collections
import copy
import sys
import warnings

import pytest
import torch
from torch import nn

import burnish
from burnish.errors import UserError

from .recording_backend import operations

X = torch.randn(5, 3)


def agrees(exported, fn, *args, **kwargs):
    for _ in range(2):
        torch.testing.assert_close(exported(*args, **kwargs), fn(*args, **kwargs), rtol=0, atol=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x, *, scale=1.0):
        self.calls.add_(1)
        return self.norm(self.linear(x)) * scale


def state_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


# ---- exported graphs


def test_module_becomes_one_graph_over_its_own_parameters():
    net = Net().eval()
    exported = burnish.export(net, (X,))
    assert operations(exported.graph_module) == ["add_", "linear", "batch_norm", "mul"]
    held = dict(exported.graph_module.named_parameters())
    assert held["linear.weight"] is net.linear.weight
    assert set(exported.graph_module.state_dict()) == set(net.state_dict()) - {"norm.num_batches_tracked"}
    agrees(exported, net, X)
    agrees(exported, net, torch.randn(5, 3))


def test_training_the_module_changes_the_results_of_the_exported_graph():
    net = Net().eval()
    exported = burnish.export(net, (X,))
    exported(X).sum().backward()
    assert net.linear.weight.grad is not None
    with torch.no_grad():
        net.linear.weight.add_(1.0)
    agrees(exported, net, X)


@pytest.mark.parametrize(
    "fn, args",
    [
        (lambda x: x * 2, (X,)),
        (lambda x, y: x @ y.T, (X, X)),
        (torch.sin, (X,)),
        (Net().eval().forward, (X,)),
        (burnish.compile(Net().eval()), (X,)),
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh()), (X,)),
        (
            lambda x, n, name, flag, nothing: x * n if flag and name == "a" and not nothing else x,
            (X, 3, "a", True, None),
        ),
        (lambda pair, table: pair[0] + pair[1][0] + table["x"], ((X, [X + 1]), {"x": X + 2})),
        (lambda x: {"out": x + 1, "parts": [x, (x * 2, None)], "n": 3}, (X,)),
        (lambda x: torch.max(x, 0), (X,)),
        (lambda x: x, (X,)),
        (lambda x: (x.view(-1), x), (X,)),
        (lambda x: collections.OrderedDict(b=x + 1, a=x), (X,)),
        (lambda: torch.arange(3), ()),
    ],
)
def test_functions_modules_methods_and_nested_arguments_are_exported(fn, args):
    agrees(burnish.export(fn, args), fn, *args)


def test_keyword_arguments_come_in_any_order():
    def fn(x, *, a, b):
        return x * a - b

    exported = burnish.export(fn, (X,), {"b": X + 1, "a": 2.0})
    torch.testing.assert_close(exported(X, a=2.0, b=X), fn(X, a=2.0, b=X))


def test_inputs_are_the_tensors_in_the_order_of_the_arguments():
    exported = burnish.export(lambda unused, table, *rest: rest[0] - table["y"], (X, {"y": X}, X + 1))
    assert [node.name for node in exported.graph_module.graph.nodes if node.op == "placeholder"] == [
        "unused",
        "args_2",
    ], "X is passed twice, so it is one input"
    assert [str(i.name) for i in exported.inputs] == ["unused", "table['y']", "args[2]"]


def test_outside_tensors_are_attributes_with_descriptive_names():
    scales = [torch.tensor(2.0), torch.tensor(3.0)]
    exported = burnish.export(lambda x: x * scales[0] + scales[1], (X,))
    names = [node.target for node in exported.graph_module.graph.nodes if node.op == "get_attr"]
    assert names == ["constant_scales_0", "constant_scales_1"]
    agrees(exported, lambda x: x * 2.0 + 3.0, X)


def test_shared_parameter_is_one_attribute():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    exported = burnish.export(nn.Sequential(first, second), (X,))
    assert sorted(dict(exported.graph_module.named_parameters())) == ["0.bias", "0.weight", "1.bias"]


def test_grad_mode_inside_becomes_part_of_the_graph():
    def fn(x, w):
        with torch.no_grad():
            y = x * w
        return y + w

    w = torch.randn(3, requires_grad=True)
    exported = burnish.export(fn, (X, w))
    exported(X, w).sum().backward()
    assert torch.equal(w.grad, torch.full((3,), 5.0))
    assert torch.is_grad_enabled()


def test_dropout_in_training_draws_new_numbers_each_time():
    module = nn.Dropout(0.5)
    exported = burnish.export(module, (X,))
    torch.manual_seed(1)
    want = module(X)
    torch.manual_seed(1)
    assert torch.equal(exported(X), want)
    assert not torch.equal(exported(torch.ones(5, 3)), exported(torch.ones(5, 3)))


def test_registered_result_types_come_back_as_they_are(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32
    )
    model = transformers.BertModel(config).eval()
    ids = torch.arange(6)[None]
    exported = burnish.export(model, (), {"input_ids": ids})
    result = exported(input_ids=ids)
    assert type(result) is type(model(ids))
    torch.testing.assert_close(result.last_hidden_state, model(ids).last_hidden_state)
    exported.save(tmp_path / "bert.burnish")
    loaded = burnish.load(tmp_path / "bert.burnish", trust=False)(input_ids=ids)
    assert type(loaded) is type(model(ids))
    torch.testing.assert_close(loaded.last_hidden_state, model(ids).last_hidden_state)


def test_printing_shows_inputs_operations_guards_and_omissions():
    def fn(x, n):
        print("never again")
        return x.sin() * n

    exported = burnish.export(fn, (X, 2))
    text = str(exported)
    assert "x: float32[5, 3], n=2): 2 operations" in text
    assert "sin = x.sin()" in text
    assert "Taken to hold" in text and "n == 2" in text
    assert exported.left_out == ["print"] and "Left out\n  print" in text
    assert repr(exported).endswith("fn: 2 inputs, 1 output>")


def test_neither_exporting_nor_calling_imports_torchs_compiler(run_alone):
    run_alone("""
        import sys, torch, burnish
        module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        exported = burnish.export(module, (torch.randn(2, 3),))
        exported(torch.randn(2, 3))
        str(exported)
        assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor", "sympy"))]
    """)


# ---- nothing is left behind


def test_buffers_parameters_and_gradients_are_as_they_were():
    net = Net().train()
    net(X).sum().backward()
    before, gradient = state_of(net), net.linear.weight.grad.clone()
    burnish.export(net, (X,))
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(net.linear.weight.grad, gradient)


def test_arguments_are_not_written_to():
    def fn(x, items):
        x.add_(1)
        return x + items[0].mul_(2)

    x, items = X.clone(), [X.clone()]
    exported = burnish.export(fn, (x, items))
    assert torch.equal(x, X) and torch.equal(items[0], X)
    want, got = (X.clone(), [X.clone()]), (X.clone(), [X.clone()])
    torch.testing.assert_close(exported(*got), fn(*want))
    torch.testing.assert_close(got, want)


def test_tensors_of_closures_and_globals_are_as_they_were():
    held = torch.zeros(3)
    inner = nn.BatchNorm1d(3)

    def fn(x):
        held.add_(1)
        return inner(x) + held

    before = state_of(inner)
    exported = burnish.export(fn, (X,))
    assert torch.equal(held, torch.zeros(3))
    torch.testing.assert_close(inner.state_dict(), before, rtol=0, atol=0)
    exported(X)
    assert torch.equal(held, torch.ones(3))


def test_random_numbers_and_gradient_mode_are_as_they_were():
    torch.manual_seed(5)
    want = torch.rand(1)
    torch.manual_seed(5)
    burnish.export(nn.Dropout(), (X,))
    assert torch.equal(torch.rand(1), want)
    assert torch.is_grad_enabled()


def test_arguments_that_need_gradients_get_none_from_the_export():
    w = torch.randn(3, requires_grad=True)
    scaled = w * 2
    exported = burnish.export(lambda x, w: x * w, (X, scaled))
    assert w.grad is None
    exported(X, scaled).sum().backward()
    assert w.grad is not None


def test_a_failed_export_leaves_no_trace_either():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.last = None

        def forward(self, x):
            x = self.norm(x)
            self.last = x
            with torch.no_grad():
                if x.sum() > 0:
                    return x
                return -x

    module = Breaks()
    before = state_of(module)
    with pytest.raises(burnish.Unsupported, match="B101"):
        burnish.export(module, (X,))
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert module.last is None
    assert torch.is_grad_enabled()


COUNT = 0


def counts_in_a_global(x):
    global COUNT
    COUNT += 1
    return x


def counts_in_an_attribute():
    class Counter(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x

    counter = Counter()
    return counter, lambda: vars(counter).get("calls", 0)


def counts_in_a_list():
    seen = ["first"]

    def fn(x):
        seen.append(1)
        return x

    return fn, lambda: len(seen) - 1


def counts_in_a_closure():
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x

    return fn, lambda: count


def counts_in_a_class():
    class Counter:
        calls = 0

    def fn(x):
        Counter.calls += 1
        return x

    return fn, lambda: Counter.calls


@pytest.mark.parametrize(
    "make, named",
    [
        (counts_in_a_class, "Counter.calls"),
        (lambda: (counts_in_a_global, lambda: COUNT), "COUNT"),
        (counts_in_an_attribute, "self.calls"),
        (counts_in_a_list, "seen"),
        (counts_in_a_closure, "count"),
    ],
)
def test_writes_to_python_objects_are_an_error_and_are_taken_back(make, named):
    fn, count = make()
    with pytest.raises(burnish.Unsupported, match=f"(?s)it changes Python objects.*writes to [^\\n]*{named}") as caught:
        burnish.export(fn, (X,))
    assert count() == 0
    assert "What to do" in str(caught.value)


def test_write_that_the_function_undoes_is_allowed():
    class Flag:
        value = False

    flag = Flag()
    flag.value = False

    def fn(x):
        flag.value = True
        try:
            return x * 2
        finally:
            flag.value = False

    agrees(burnish.export(fn, (X,)), lambda x: x * 2, X)

    def of_the_class(x):
        Flag.value = True
        try:
            return x * (2 if Flag.value else 3)
        finally:
            Flag.value = False

    agrees(burnish.export(of_the_class, (X,)), lambda x: x * 2, X)


def test_argument_list_that_is_changed_is_an_error():
    items = [X]
    with pytest.raises(burnish.Unsupported, match="changes Python objects"):
        burnish.export(lambda items: items.append(items[0] + 1), (items,))
    assert len(items) == 1


# ---- calls that do not fit


@pytest.mark.parametrize(
    "args, kwargs, said",
    [
        ((torch.randn(4, 3), 2), {}, r"x was a tensor of float32\[5, 3\], and is one of float32\[4, 3\]"),
        ((X.double(), 2), {}, r"and is one of float64"),
        ((X, 3), {}, "n was 2, and is 3"),
        ((X, 2.0), {}, r"n was 2, and is 2\.0"),
        ((X, True), {}, "n was 2, and is True"),
        ((3, 2), {}, r"x was a tensor of float32\[5, 3\], and is a int"),
        ((X,), {"n": 2}, r"exported with arguments nested like \(x, n\)"),
        ((X, [2]), {}, "nested like"),
    ],
)
def test_call_with_other_arguments_is_a_user_error(args, kwargs, said):
    exported = burnish.export(lambda x, n: x * n, (X, 2))
    with pytest.raises(UserError, match=said):
        exported(*args, **kwargs)


def test_one_tensor_for_two_arguments_has_to_stay_one():
    exported = burnish.export(lambda x, y: x + y, (X, X))
    agrees(exported, lambda x, y: x + y, X, X)
    with pytest.raises(UserError, match="y was the same tensor as another argument"):
        exported(X, X.clone())


def test_two_tensors_may_be_one_only_if_nothing_is_written():
    reads = burnish.export(lambda x, y: x + y, (X, X.clone()))
    agrees(reads, lambda x, y: x + y, X, X)
    writes = burnish.export(lambda x, y: x.add_(y), (X, X.clone()))
    with pytest.raises(UserError, match="two arguments are the same tensor"):
        writes(X, X)


# ---- functions that cannot be exported


@pytest.mark.parametrize(
    "fn, args, kwargs, said",
    [
        (lambda x: x, X, None, "takes the arguments as a tuple"),
        (lambda x: x, (X,), [1], "keyword arguments as a dictionary"),
        (lambda f: f(X), (torch.sin,), None, "f is a builtins.builtin_function_or_method.*functools.partial"),
        (lambda m: m(X), (nn.Linear(3, 3),), None, r"m is a torch.nn.modules.linear.Linear"),
        (burnish.disable(lambda x: x), (X,), None, "it is disabled"),
        (nn.LazyLinear(3), (X,), None, "LazyLinear.weight has no shape yet. Call the module once"),
        (lambda x: x[0].add_(x[1]), ([X[:2], X[:2].view(2, 3)],), None, r"x\[0\] and x\[1\] share memory"),
    ],
)
def test_wrong_use_is_a_user_error(fn, args, kwargs, said):
    with pytest.raises(UserError, match=said):
        burnish.export(fn, args, kwargs)


def test_ambient_autocast_is_refused_and_autocast_inside_is_exported():
    with torch.autocast("cpu"), pytest.raises(UserError, match="Enter autocast inside the function"):
        burnish.export(nn.Linear(3, 3), (X,))
    linear = nn.Linear(3, 3)

    def fn(x):
        with torch.autocast("cpu"):
            return linear(x)

    exported = burnish.export(fn, (X,))
    assert exported(X).dtype == torch.bfloat16
    agrees(exported, fn, X)


def test_break_is_an_error_that_names_it():
    with pytest.raises(burnish.Unsupported, match="B102") as caught:
        burnish.export(lambda x: x + x.sum().item(), (X,))
    assert caught.value.reason.kind.name == "data-read"


def test_non_tensor_result_is_an_error_that_names_it():
    class Box:
        def __init__(self, x):
            self.x = x

    with pytest.raises(burnish.Unsupported, match="(?s)returns a .*Box.*What to do"):
        burnish.export(lambda x: Box(x), (X,))


def test_exception_of_the_function_is_its_own():
    def fails(x):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        burnish.export(fails, (X,))


def test_exporting_does_not_touch_a_compiled_function():
    compiled = burnish.compile(Net().eval(), backend="eager")
    want = compiled(X)
    burnish.export(compiled, (X,))
    agrees(compiled, lambda x: want, X)


# ---- torch.export


def test_graph_goes_on_to_torch_export_under_the_same_names():
    net = Net().eval()
    exported = burnish.export(net, (X,), {"scale": 2.0})
    program = exported.to_torch_export()
    assert "torch.export" in sys.modules
    assert set(program.state_dict) == set(exported.graph_module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(program.module()(X, scale=2.0), copy.deepcopy(net)(X, scale=2.0))
