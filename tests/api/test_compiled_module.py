"""A compiled module behaves like the original module in everything but how it computes."""

import copy
import functools
import gc
import inspect
import io
import pickle
import weakref
from pathlib import Path
from types import MethodType

import pytest
import torch
from torch import nn

import burnish

from ..forked_programs import run_program
from .recording_backend import Recording


class Net(nn.Module):
    limit = 3

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.register_buffer("seen", torch.zeros(()))
        self.scale = 2.0

    def forward(self, x, *, shift: float = 0.0):
        """Net's own."""
        self.seen.add_(1)
        return self.inner(x) * self.scale + shift

    def helper(self):
        return "helped"


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def compiled(net):
    return burnish.compile(net, backend="eager")


X = torch.randn(2, 4)


def test_it_is_a_module(compiled):
    assert isinstance(compiled, nn.Module)
    assert list(compiled.children()) == [compiled._orig_mod]
    assert bool(compiled) is True, "although it has __len__, for containers"


def test_keys_and_names_are_those_of_torch_compile(net, compiled):
    # In a process of its own: torch.compile changes torch.optim for the whole process.
    code = (
        "import torch; from tests.api.test_compiled_module import Net; m = torch.compile(Net(), backend='eager'); "
        "print(list(m.state_dict()), [name for name, _ in m.named_parameters()])"
    )
    ran = run_program(code)
    assert ran.stdout.strip() == f"{list(compiled.state_dict())} {[name for name, _ in compiled.named_parameters()]}"
    assert [name for name, _ in compiled.named_buffers()] == ["_orig_mod.seen"]
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))


def test_state_dict_is_loaded_under_the_same_keys(net, compiled):
    other = burnish.compile(Net(), backend="eager")
    other.load_state_dict(compiled.state_dict())
    torch.testing.assert_close(other.state_dict(), compiled.state_dict())
    assert not torch.equal(Net().inner[0].weight, net.inner[0].weight)


def test_attributes_are_read_from_the_original(net, compiled):
    assert compiled.scale == 2.0 and compiled.limit == 3
    assert compiled.inner is net.inner
    assert compiled.helper() == "helped"
    assert {"helper", "scale", "inner"} <= set(dir(compiled))
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = compiled.nothing


def test_attributes_are_written_to_the_original_and_seen_by_the_next_call(net, compiled):
    for scale in (2.0, 3.0, 2.0):
        compiled.scale = scale
        assert net.scale == scale
        torch.testing.assert_close(compiled(X), net.inner(X) * scale)
    compiled.extra = nn.Linear(1, 1)
    assert "extra" in dict(net.named_children())
    del compiled.extra
    assert not hasattr(net, "extra")
    compiled.register_buffer("late", torch.ones(1))
    assert "late" in dict(net.named_buffers()) and "_orig_mod.late" in compiled.state_dict()


def test_a_new_forward_is_compiled_too(net, compiled):
    compiled(X)
    compiled.forward = lambda x: x * 10
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * 10)


def test_a_wrapper_written_back_to_forward_is_compiled_with_the_module(net, compiled):
    plain = compiled.forward
    want = net(X)
    around = {
        "a method": lambda: MethodType(plus_one(compiled.forward.__func__), compiled),
        "a function": lambda: plus_one(compiled.forward),
        "the original's": lambda: plus_one(net.forward),
    }
    for kind, make in around.items():
        compiled.forward = make()
        for _ in range(3):
            torch.testing.assert_close(compiled(X), want + 1, msg=kind)
            torch.testing.assert_close(compiled.forward(X), want + 1, msg=kind)
            assert burnish.was_compiled(compiled)
        compiled.forward = plain
        torch.testing.assert_close(compiled(X), want)


def plus_one(forward):
    @functools.wraps(forward)
    def around(*args, **kwargs):
        return forward(*args, **kwargs) + 1

    return around


def test_writing_the_same_original_keeps_compiled_code(net):
    recording = Recording()
    compiled = burnish.compile(net, backend=recording)
    for _ in range(3):
        compiled(X)
        compiled._orig_mod = net
    assert len(recording.graphs) == 1
    compiled._orig_mod = Net().eval()
    compiled(X)
    assert len(recording.graphs) == 2


def test_training_mode_is_shared_by_module_and_original(net, compiled):
    assert not compiled.training
    assert compiled.train() is compiled
    assert net.training and net.inner.training and compiled.training
    net.eval()
    assert not compiled.training
    compiled.training = True
    assert net.training and not net.inner.training


def test_training_and_evaluation_compute_differently(net, compiled):
    for mode in (True, False, True, False):
        compiled.train(mode)
        torch.manual_seed(3)
        want = net(X)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(X), want, rtol=0, atol=0)


def test_train_written_by_the_user_is_the_one_that_runs():
    class Frozen(nn.Module):
        def forward(self, x):
            return x

        def train(self, mode=True):
            return super().train(False)

    frozen = Frozen()
    burnish.compile(frozen).train()
    assert not frozen.training


def test_signature_of_the_module_and_of_forward_are_the_originals(net, compiled):
    assert str(inspect.signature(compiled.forward)) == "(x, *, shift: float = 0.0)"
    assert str(inspect.signature(compiled)) == "(x, *, shift: float = 0.0)"
    assert compiled.forward.__doc__ == "Net's own."
    torch.testing.assert_close(compiled.forward(X, shift=1.0), net(X) + 1.0)


def test_the_class_it_shows_has_the_name_and_the_signature_of_the_original(net, compiled):
    assert compiled.__class__.__name__ == "Net" and not isinstance(compiled, Net)
    assert inspect.signature(compiled.__class__.forward) == inspect.signature(Net.forward)


def test_hooks_run_once_whichever_module_they_are_put_on(net, compiled):
    ran = []
    for owner in (net, compiled):
        owner.register_forward_pre_hook(lambda module, args: ran.append("before"))
        owner.register_forward_hook(lambda module, args, output: ran.append("after"))
    handle = compiled.register_forward_hook(lambda module, args, output: output + 100)
    for _ in range(3):
        ran.clear()
        torch.testing.assert_close(compiled(X), net.inner(X) * 2.0 + 100)
        assert ran == ["before", "before", "after", "after"]
    handle.remove()
    torch.testing.assert_close(compiled(X), net.inner(X) * 2.0)


def test_backward_hooks_put_on_the_compiled_module_run(net, compiled):
    seen = []
    compiled.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].shape))
    for i in range(3):
        compiled(X).sum().backward()
        assert len(seen) == i + 1


def test_copies_are_independent_and_compiled(net):
    recording = Recording()
    compiled = burnish.compile(net, backend=recording)
    compiled(X)
    twin = copy.deepcopy(compiled)
    assert type(twin) is type(compiled) and twin._orig_mod is not net
    twin.scale = 5.0
    for _ in range(2):
        torch.testing.assert_close(twin(X), net.inner(X) * 5.0)
        torch.testing.assert_close(compiled(X), net.inner(X) * 2.0)
    assert len(recording.graphs) == 2, "the copy goes to the same backend"
    assert copy.copy(compiled)._orig_mod is net


def test_it_can_be_pickled_and_saved(net, compiled):
    want = compiled(X)
    again = pickle.loads(pickle.dumps(compiled))
    assert type(again) is type(compiled) and again._compile_kwargs == compiled._compile_kwargs
    for _ in range(2):
        torch.testing.assert_close(again(X), want)
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(X), want)


def test_repr_shows_the_module_inside_and_how_it_last_ran(compiled):
    compiled = burnish.compile(compiled._orig_mod)
    assert repr(compiled).startswith("CompiledModule(\n  compiled when it is called\n  (_orig_mod): Net(")
    compiled(X)
    assert repr(compiled).startswith("CompiledModule(\n  1 segment, the last call ran compiled\n  (_orig_mod)")
    with burnish.set_stance("force_eager"):
        compiled(X)
    assert "1 segment, the last call ran as plain Python" in repr(compiled)
    assert "1 segment, the last call ran as plain Python" in compiled._repr_html_()


def test_notebooks_show_what_the_original_shows():
    class Drawn(Net):
        def _repr_html_(self):
            return "<b>drawn</b>"

    class Answers(Net):
        def __getattr__(self, name):
            return (lambda: "<i>asked</i>") if name == "_repr_html_" else super().__getattr__(name)

    def function(x):
        return x + 1

    assert burnish.compile(Drawn())._repr_html_() == "<b>drawn</b>"
    assert burnish.compile(Answers())._repr_html_() == "<i>asked</i>"
    shown = burnish.compile(function)
    assert "function: compiled when it is called</pre>" in shown._repr_html_()
    shown(X)
    assert "function: 1 segment, the last call ran compiled</pre>" in shown._repr_html_()
    wrapped = functools.wraps(shown)(lambda x: x + 1)
    assert "function: compiled when" in burnish.compile(wrapped)._repr_html_()
    function._repr_html_ = lambda: "mine"
    assert burnish.compile(function)._repr_html_() == "mine"


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.ones(3)), 1.0

    def forward(self, x, power=1):
        return x * (self.weight * self.scale) ** power


def test_compiled_method_of_a_copy_is_bound_to_the_copy():
    model, x = Scaled(), torch.ones(3)
    model.forward = burnish.compile(model.forward)
    first = copy.deepcopy(model)
    second, loaded = copy.deepcopy(first), pickle.loads(pickle.dumps(model))
    for number, each in enumerate((model, first, second, loaded)):
        assert each.forward.__self__ is each
        with torch.no_grad():
            each.weight.fill_(number + 2.0)
    for scale in (1.0, 2.0, 3.0):
        for number, each in enumerate((model, first, second, loaded)):
            each.scale = scale
            torch.testing.assert_close(each(x, power=2), torch.full((3,), ((number + 2.0) * scale) ** 2))
            assert burnish.was_compiled(each) is (each is not loaded)  # files hold the plain method


def test_compiled_method_looks_and_fails_like_a_method():
    model = Scaled()
    compiled = burnish.compile(model.forward)
    assert inspect.ismethod(compiled) and inspect.signature(compiled) == inspect.signature(model.forward)
    for arguments in ((), (X, 1, 2)):
        with pytest.raises(TypeError) as eager:
            model.forward(*arguments)
        with pytest.raises(TypeError) as ours:
            compiled(*arguments)
        assert str(ours.value) == str(eager.value)
    burnish.disable(compiled)(torch.ones(3))
    assert not burnish.was_compiled(compiled)


def test_learning_rate_scheduler_takes_a_compiled_step():
    weights, optimizers = [], []
    for compile in (lambda step: step, burnish.compile):
        weights.append(nn.Parameter(torch.ones(3)))
        optimizers.append(torch.optim.SGD([weights[-1]], 0.1))
        optimizers[-1].step = compile(optimizers[-1].step)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizers[-1], 1)
        for _ in range(3):
            weights[-1].square().sum().backward()
            optimizers[-1].step()
            scheduler.step()
    torch.testing.assert_close(*weights)


def test_argument_named_self_reaches_a_compiled_function():
    compiled = burnish.compile(lambda x, self=1: x * self)
    for value in (2, 3, 4):
        assert compiled(torch.ones(2), self=value).tolist() == [value, value]


def test_dropped_compiled_function_is_freed_at_once(net):
    gc.collect()
    gc.disable()
    try:
        compiled = burnish.compile(net.forward)
        alive = weakref.ref(compiled)
        del compiled
        assert alive() is None
    finally:
        gc.enable()


def test_moving_and_converting_changes_the_original_and_recompiles(net, compiled):
    compiled(X)
    assert compiled.double() is compiled
    assert net.inner[0].weight.dtype == torch.float64
    for _ in range(2):
        assert compiled(X.double()).dtype == torch.float64


def test_containers_keep_their_length_items_and_iteration():
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = burnish.compile(layers, backend="eager")
    assert len(compiled) == 2 and compiled[1] is layers[1]
    assert list(compiled) == list(layers)
    compiled[1] = nn.Tanh()
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), torch.tanh(layers[0](x)))
    with pytest.raises(TypeError, match="'Net' has no len"):
        len(burnish.compile(Net()))


def test_compiled_module_inside_another_is_part_of_its_graph(net):
    recording = Recording()
    outer = nn.Sequential(burnish.compile(net, backend="eager"), nn.ReLU())
    compiled = burnish.compile(outer, backend=recording, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), outer(X))
    assert len(recording.graphs) == 1


def test_lazy_modules_take_their_shape_from_the_first_call():
    def results(compile_):
        torch.manual_seed(0)
        run = compile_(nn.Sequential(nn.LazyLinear(3), nn.ReLU()))
        return [run(X), run(X), run(X)]

    torch.testing.assert_close(
        results(lambda module: burnish.compile(module, backend="eager")), results(lambda module: module)
    )


def test_a_module_may_hold_its_compiled_module(net, compiled):
    net.__dict__["door"] = compiled
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert copied._orig_mod.door is copied


# ---- in place


def test_compiled_in_place_it_keeps_class_keys_and_signature(net):
    keys, signature = list(net.state_dict()), inspect.signature(net.forward)
    recording = Recording()
    assert burnish.compile_(net, backend=recording) is net
    assert type(net) is Net and list(net.state_dict()) == keys and inspect.signature(net.forward) == signature
    for shift in (0.0, 1.0, 0.0):
        torch.testing.assert_close(net(X, shift=shift), net.inner(X) * 2.0 + shift)
    assert recording.graphs and burnish.was_compiled(net)
    assert net.seen == 3


def test_hooks_of_a_module_compiled_in_place_run_once(net):
    ran = []
    burnish.compile_(net, backend="eager")
    net.register_forward_hook(lambda module, args, output: ran.append("after"))
    for i in range(3):
        net(X)
        assert len(ran) == i + 1


def test_copies_of_a_module_compiled_in_place_are_not_compiled(net):
    burnish.compile_(net, backend="eager")
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        twin.scale = 5.0
        torch.testing.assert_close(twin(X), net.inner(X) * 5.0)
        assert not burnish.was_compiled(twin)


def test_compiling_in_place_with_disable_takes_it_back(net):
    burnish.compile_(net, backend="eager")(X)
    assert burnish.was_compiled(net)
    burnish.compile_(net, disable=True)(X)
    assert not burnish.was_compiled(net)


def test_a_compiled_module_compiled_in_place_takes_the_new_arguments(net, compiled):
    recording = Recording()
    assert burnish.compile_(compiled, backend=recording) is compiled
    compiled(X)
    assert len(recording.graphs) == 1 and "_compiled_call_impl" not in vars(net)


def test_only_modules_are_compiled_in_place():
    with pytest.raises(burnish.UserError, match="compiles a module in place"):
        burnish.compile_(torch.sin)


# ---- whether it ran compiled


def test_was_compiled_reports_the_last_call(net, compiled):
    assert not burnish.was_compiled(compiled)
    for _ in range(2):
        compiled(X)
        assert burnish.was_compiled(compiled)
    with burnish.set_stance("force_eager"):
        compiled(X)
    assert not burnish.was_compiled(compiled)


@pytest.mark.falls_back("limit")
def test_was_compiled_is_false_after_compilation_was_abandoned(compiled):
    with burnish.settings.patch(segment_limit=1):
        compiled(X)
        with pytest.warns(UserWarning, match="runs eagerly from now on"):
            compiled(torch.randn(3, 4))
        assert not burnish.was_compiled(compiled)
        compiled(X)
        assert burnish.was_compiled(compiled)


@pytest.mark.falls_back("limit", only=r"module|function")
@pytest.mark.parametrize("kind", ["module", "function"])
def test_the_warning_of_abandoned_compilation_points_at_the_users_line(net, kind):
    called = burnish.compile(net if kind == "module" else (lambda x: x * 2), backend="eager")
    with burnish.settings.patch(segment_limit=1):
        called(X)
        with pytest.warns(UserWarning, match="runs eagerly from now on") as caught:
            line = inspect.currentframe().f_lineno + 1
            called(X.t() if kind == "function" else X.clone().requires_grad_())
    assert [(Path(warning.filename).name, warning.lineno) for warning in caught] == [(Path(__file__).name, line)]


def test_was_compiled_finds_compiled_submodules(net):
    outer = nn.Sequential(burnish.compile(net, backend="eager"), nn.ReLU())
    outer(X)
    assert burnish.was_compiled(outer) and not burnish.was_compiled(nn.Sequential(net))
    step = burnish.compile(lambda x: x + 1, backend="eager")
    assert not burnish.was_compiled(step)
    step(X)
    assert burnish.was_compiled(step)


# ---- beside Dynamo; in processes of their own, for what it does to torch

BESIDE = """
import copy, io, inspect, pickle, sys, torch, burnish
from tests.api.test_compiled_module import Net
x = torch.randn(2, 4)
net = Net().eval()
early = burnish.compile(net, backend="eager")
early(x)
assert "torch._dynamo" not in sys.modules and issubclass(early.__class__, type(early))
from torch._dynamo.eval_frame import OptimizedModule
late = burnish.compile(net, backend="eager")
want = net(x)
"""


def beside_dynamo(program):
    run_program(BESIDE + program)


def test_it_is_an_optimized_module_once_dynamo_is_there():
    beside_dynamo("""
for compiled in (early, late):
    assert isinstance(compiled, OptimizedModule) and isinstance(compiled, type(early))
    assert compiled._orig_mod is net and repr(compiled).startswith("CompiledModule(")
    for copied in (copy.copy(compiled), copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(copied) is type(compiled)
        torch.testing.assert_close(copied(x), want)
    assert copy.deepcopy(compiled._compile_kwargs) == compiled._compile_kwargs
""")


def test_dynamo_sees_the_original_through_the_compiled_module():
    beside_dynamo("""
graphs = []
def backend(gm, inputs):
    graphs.append(gm)
    return gm.forward
function = burnish.compile(lambda x: x * 2, backend="eager")
for run, expected in ((late, want), (torch.nn.Sequential(late, torch.nn.ReLU()), want.relu()), (function, x * 2)):
    graphs.clear()
    torch.testing.assert_close(torch.compile(run, backend=backend, fullgraph=True)(x), expected)
    assert len(graphs) == 1
""")


def test_capture_inside_does_not_query_the_class_of_a_compiled_module():
    beside_dynamo("""
def fn(x):
    return late(x) + (1 if isinstance(late, torch.nn.Module) else 0)
torch.testing.assert_close(burnish.compile(fn, backend="eager", fullgraph=True)(x), want + 1)
""")
