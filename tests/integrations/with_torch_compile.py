"""Burnish installed in torch.compile: the calls that it takes or passes on, and uninstalling."""

import functools
import importlib.metadata
import inspect
import subprocess
import sys

import pytest
import torch
from torch import nn

import burnish
from burnish import events
from burnish.frontend.compiled_module import CompiledModule
from burnish.integrations import torch_compile

X = torch.randn(4, 8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, scale=1.0):
        return self.last(torch.relu(self.first(x))) * scale


# Dynamo finds the name in the metadata of an installed package, which a path on PYTHONPATH lacks.
is_installed = bool(list(importlib.metadata.Distribution.discover(name="burnish")))
behind_dynamo = pytest.mark.skipif(not is_installed, reason="burnish is not installed, and Dynamo does not know it")


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def event_kinds():
    """The kinds of events during the test."""
    seen = []
    stop = events.subscribe(lambda event: seen.append(event.kind))
    yield seen
    stop()


def test_backend_burnish_is_compiled_by_us_capture_included(net, event_kinds):
    burnish.install()
    compiled = torch.compile(net, backend="burnish")
    assert isinstance(compiled, CompiledModule)
    torch.testing.assert_close(compiled(X), net(X))
    assert burnish.was_compiled(compiled) and "segment" in event_kinds and "graph.dynamo" not in event_kinds


def test_modules_are_compiled_in_place(net, event_kinds):
    burnish.install()
    want = net(X)
    net.compile(backend="burnish", fullgraph=True)
    assert type(net) is Net
    torch.testing.assert_close(net(X), want)
    assert burnish.was_compiled(net) and "graph.dynamo" not in event_kinds


def test_as_a_decorator_with_arguments_it_compiles_too():
    burnish.install()

    @torch.compile(backend="burnish", dynamic=False, mode="max-autotune")
    def fn(x):
        return torch.sin(x) + 1

    torch.testing.assert_close(fn(X), torch.sin(X) + 1)
    assert burnish.was_compiled(fn)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda gm, inputs: gm.forward])
def test_other_backends_pass_through_untouched(net, event_kinds, backend):
    with burnish.install():
        compiled = torch.compile(net, backend=backend)
        assert type(compiled) is torch._dynamo.OptimizedModule
        torch.testing.assert_close(compiled(X), net(X))
    assert not event_kinds


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda gm, inputs: gm.forward])
def test_as_the_default_we_capture_for_backends_that_run_graphs(net, event_kinds, backend):
    with burnish.install(default=True):
        compiled = torch.compile(net, backend=backend)
        assert isinstance(compiled, CompiledModule)
        torch.testing.assert_close(compiled(X), net(X))
    assert "segment" in event_kinds


@pytest.mark.parametrize("backend", ["openxla", torch._TorchCompileInductorWrapper("default", None, None)])
def test_backends_that_need_dynamo_pass_through_as_well_where_we_are_the_default(net, backend):
    with burnish.install(default=True):
        assert type(torch.compile(net, backend=backend)) is torch._dynamo.OptimizedModule


def test_a_backend_of_the_users_gets_mode_and_options_as_from_torch(net):
    got = []

    def backend(gm, inputs, **given):
        got.append(given)
        return gm.forward

    with burnish.install(default=True):
        torch.compile(net, backend=backend, options={"mine": 3})(X)
        torch.compile(net, backend=backend, mode="max-autotune")(X)
    assert got == [{"options": {"mine": 3}}, {"mode": "max-autotune"}]


def branches(x):
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def test_calls_to_dynamos_api_are_served_when_we_are_the_default(event_kinds):
    originals = torch._dynamo.explain, torch._dynamo.reset, torch._dynamo.optimize, torch.compiler.reset
    with burnish.install(default=True):
        explained = torch._dynamo.explain(branches)(X)
        assert (explained.graph_count, explained.graph_break_count) == (2, 1)
        assert torch._dynamo.explain(branches, X).graph_count == 2
        assert torch._dynamo.explain(lambda x, original: x * original, X, original=3).graph_count == 1
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(branches)
        for _ in range(3):
            torch.testing.assert_close(compiled(X), X.sin().cos())
        counters = torch._dynamo.utils.counters
        assert counters["stats"] == {"unique_graphs": 2, "calls_captured": 2}
        assert sum(counters["graph_break"].values()) == 1
        for reset in (torch._dynamo.reset, torch.compiler.reset):
            event_kinds.clear()
            reset()
            compiled(X)
            assert event_kinds.count("segment") == 2
        for backend in ("inductor", "eager"):
            optimized = torch._dynamo.optimize(backend, nopython=True)(lambda x: x.sin() + 1)
            torch.testing.assert_close(optimized(X), X.sin() + 1)
            assert burnish.was_compiled(optimized)
        assert "burnish" in torch.compiler.list_backends() or not is_installed
    assert (torch._dynamo.explain, torch._dynamo.reset, torch._dynamo.optimize, torch.compiler.reset) == originals
    torch._dynamo.utils.counters.clear()
    burnish.compile(lambda x: x + 1)(X)
    assert not torch._dynamo.utils.counters["stats"]


def test_cache_artifacts_are_the_cache_on_disk(tmp_path):
    with burnish.settings.patch(cache=True, cache_dir=tmp_path / "first"), burnish.install(default=True):
        torch.compile(lambda x: x.sin() * 3 + 1)(X)
        saved, info = torch.compiler.save_cache_artifacts()
        assert info is not None
    with burnish.settings.patch(cache=True, cache_dir=tmp_path / "second"), burnish.install(default=True):
        assert not [path for path in (tmp_path / "second").rglob("*") if path.is_file()]
        torch.compiler.load_cache_artifacts(saved)
    names = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and len(path.name) == 62}
        for folder in (tmp_path / "first", tmp_path / "second")
    ]
    assert names[0] and names[0] == names[1]
    with burnish.settings.patch(cache=False), burnish.install(default=True):
        assert torch.compiler.save_cache_artifacts() is None


def test_an_error_of_fullgraph_can_be_caught_by_dynamos_class_without_loading_it_before():
    program = """
import torch, burnish
burnish.install(default=True)
try:
    torch.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)(torch.ones(3))
except torch._dynamo.exc.Unsupported as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split()[-1] == "Unsupported"


def test_default_takes_calls_without_a_backend_and_with_inductor(net):
    with burnish.install(default=True):
        for kwargs in ({}, {"backend": "inductor"}, {"backend": None, "mode": "reduce-overhead"}):
            compiled = torch.compile(net, **kwargs)
            assert isinstance(compiled, CompiledModule), kwargs
            torch.testing.assert_close(compiled(X), net(X))
            assert burnish.was_compiled(compiled)


@pytest.mark.slow
def test_without_default_they_are_torchs(net):
    with burnish.install():
        assert type(torch.compile(net)) is torch._dynamo.OptimizedModule


@pytest.mark.skipif(not hasattr(torch.compiler, "set_default_backend"), reason="this torch has one default")
def test_a_default_set_in_torch_is_followed(net):
    burnish.install()
    torch._dynamo.backends.registry.set_default_backend("burnish")
    try:
        assert isinstance(torch.compile(net), CompiledModule)
    finally:
        torch._dynamo.backends.registry.set_default_backend(None)


def test_disable_is_honoured(net):
    burnish.install()
    assert torch.compile(net, backend="burnish", disable=True) is net


def test_arguments_only_torch_has_are_taken_and_others_refused(net):
    burnish.install()
    if "recompile_limit" in inspect.signature(torch.compile).parameters:  # not in torch 2.11
        assert isinstance(torch.compile(net, backend="burnish", recompile_limit=3), CompiledModule)
    spec = {"shapes_spec", "dynamic_shapes"} & set(inspect.signature(torch.compile).parameters)
    for name in spec:
        torch.compile(net, backend="burnish", **{name: {}})(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'backnd'"):
        torch.compile(net, backend="burnish", backnd=1)


def test_install_is_undone_by_the_end_of_the_block_and_by_uninstall():
    original = torch.compile
    with burnish.install():
        assert torch.compile is not original
        with burnish.install(default=True):
            assert torch_compile._default is True
        assert torch_compile._default is False
    assert torch.compile is original
    burnish.install()
    burnish.install()
    burnish.uninstall()
    assert torch.compile is original
    burnish.uninstall()
    assert torch.compile is original


def test_the_replaced_torch_compile_looks_like_the_original_and_wraps_nothing():
    original = torch.compile
    burnish.install()
    assert torch.compile.__name__ == original.__name__ and torch.compile.__doc__ == original.__doc__
    assert inspect.signature(torch.compile) == inspect.signature(original)
    # Another framework in this process may have put its own around torch's already.
    assert getattr(torch.compile, "__wrapped__", None) is getattr(original, "__wrapped__", None)


def patched_as_lightning_does(compile_fn):
    @functools.wraps(compile_fn)
    def capture(*args, **kwargs):
        compiled = compile_fn(*args, **kwargs)
        if args and isinstance(args[0], nn.Module):
            compiled._compile_kwargs = dict(kwargs)
        return compiled

    return capture


@behind_dynamo
@pytest.mark.parametrize("ours_first", [True, False])
def test_it_goes_with_another_patch_in_any_order(net, ours_first):
    original = torch.compile
    try:
        if ours_first:
            burnish.install()
        torch.compile = patched_as_lightning_does(torch.compile)
        for _ in range(2):
            burnish.install()
            compiled = torch.compile(net, backend="burnish")
            assert isinstance(compiled, CompiledModule)
            assert compiled._compile_kwargs["backend"] == "burnish"
            assert torch.compile(net, backend="eager")._compile_kwargs == {"backend": "eager"}
            burnish.uninstall()
            assert not isinstance(torch.compile(net, backend="eager"), CompiledModule)
            assert type(torch.compile(net, backend="burnish")) is torch._dynamo.OptimizedModule
    finally:
        torch.compile = original


def test_uninstall_leaves_another_replacement_on_top():
    original = torch.compile
    try:
        burnish.install()
        torch.compile = theirs = patched_as_lightning_does(torch.compile)
        burnish.uninstall()
        assert torch.compile is theirs
        assert torch.compile(nn.Linear(1, 1), backend="eager")._compile_kwargs == {"backend": "eager"}
    finally:
        torch.compile = original


def test_the_replacement_shows_the_function_it_wraps():
    original = torch.compile
    try:
        torch.compile = theirs = patched_as_lightning_does(original)
        burnish.install()
        assert torch.compile is not theirs and torch.compile.__wrapped__ is original
        burnish.uninstall()
        assert torch.compile is theirs
    finally:
        torch.compile = original


def test_the_kwargs_of_a_module_can_be_deleted_and_set_again(net):
    with burnish.install(default=True):
        compiled = torch.compile(net, dynamic=False)
    del compiled._compile_kwargs
    assert not hasattr(compiled, "_compile_kwargs")
    compiled._compile_kwargs = {"mode": "default"}
    assert compiled._compile_kwargs == {"mode": "default"}
    torch.testing.assert_close(compiled(X), net(X))


def test_compiling_again_with_the_kwargs_of_a_module_gives_the_same_backend(net):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    for chosen, recompiles in (("burnish", None), ("eager", None), (backend, graphs)):
        compiled = burnish.compile(net, backend=chosen, fullgraph=True)
        kwargs = compiled._compile_kwargs  # from here on this read is understood without install
        again = torch.compile(net, **kwargs)
        assert isinstance(again, CompiledModule) and again._kwargs == compiled._kwargs
        torch.testing.assert_close(again(X), net(X))
        assert recompiles is None or len(recompiles) == 1


def test_the_kwargs_of_torch_compile_are_preserved(net):
    with burnish.install(default=True):
        for kwargs in ({}, {"mode": "reduce-overhead", "fullgraph": True}, {"backend": "burnish"}):
            compiled = torch.compile(net, **kwargs)
            assert compiled._compile_kwargs == kwargs
            again = torch.compile(net, **compiled._compile_kwargs)
            assert again._kwargs == compiled._kwargs


# ---- without install: Dynamo captures, we compile


@behind_dynamo
def test_the_name_is_known_without_install_and_an_event_names_the_capture(net, event_kinds):
    assert "burnish" in torch._dynamo.list_backends()
    compiled = torch.compile(net, backend="burnish")
    assert type(compiled) is torch._dynamo.OptimizedModule
    for _ in range(2):
        torch.testing.assert_close(compiled(X), net(X))
    assert "graph.dynamo" in event_kinds and "lower.refused" not in event_kinds


@behind_dynamo
def test_with_dynamos_capture_gradients_are_eagers(net):
    compiled = torch.compile(net, backend="burnish")
    results = []
    for run in (net, compiled, compiled):
        net.zero_grad()
        x = X.clone().requires_grad_()
        run(x, 2.0).pow(2).sum().backward()
        results.append([x.grad, *(p.grad.clone() for p in net.parameters())])
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


@pytest.mark.slow
@behind_dynamo
def test_with_dynamos_capture_sizes_may_change(net):
    for dynamic in (None, True):
        compiled = torch.compile(net, backend="burnish", dynamic=dynamic)
        for rows in (2, 3, 5, 7, 3):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x), net(x))


@pytest.mark.slow
@behind_dynamo
def test_with_dynamos_capture_tensors_of_the_graph_itself_are_inputs(net):
    constant = torch.arange(8.0)

    @torch.compile(backend="burnish")
    def fn(x):
        return x * constant + torch.tensor([2.0])

    for _ in range(2):
        torch.testing.assert_close(fn(X), X * constant + 2)


@pytest.mark.slow
@behind_dynamo
def test_with_dynamos_capture_writes_to_an_input_change_it():
    @torch.compile(backend="burnish")
    def fn(x):
        x.add_(1)
        return x * 2, x.sum()

    for _ in range(3):
        x, y = X.clone(), X.clone()
        want = (y.add_(1) * 2, y.sum())
        torch.testing.assert_close(fn(x), want)
        assert torch.equal(x, y)


@pytest.mark.slow
@behind_dynamo
def test_with_dynamos_capture_graph_breaks_and_random_numbers_work():
    @torch.compile(backend="burnish")
    def fn(x):
        y = torch.nn.functional.dropout(x, 0.5)
        if y.sum() > 1e9:
            return y
        return y - x

    x = torch.ones(1000)
    torch.manual_seed(1)
    first = fn(x)
    torch.manual_seed(1)
    assert torch.equal(fn(x), first)
    assert 400 < (first == -1).sum() < 600


class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x, *more, scale=2, **named):
        y = torch.cond(x.sum() > 0, lambda t: self.linear(t).sin(), lambda t: t.cos(), (x,))
        return {"y": y * scale * x.shape[0], "more": [each + 1 for each in more], "named": named.get("bias")}


@pytest.mark.parametrize(
    "options", [{}, {"aten_graph": True}, {"assume_static_by_default": True, "tracing_mode": "fake"}]
)
def test_an_export_is_ours_when_we_are_the_default(event_kinds, options):
    model, one = Branching(), torch.ones(1)
    original = torch._dynamo.export
    with burnish.install(default=True):
        module, guards = torch._dynamo.export(model, **options)(X, one, 3, scale=4, bias=one)
        assert isinstance(module, torch.fx.GraphModule) and guards and event_kinds.count("traced") == 1
        for other in ((X, one, 3), (-X, one, 3), (X[:2], one, 3), (X, one, 5)):
            want = model(*other, scale=4, bias=one)
            torch.testing.assert_close(module(*other, scale=4, bias=one), want)
    assert torch._dynamo.export is original
    names = [name for name, _ in module.named_modules()]
    assert len([name for name in names if name.endswith("_0")]) == 2  # the branches
    operators = [node.target for node in module.graph.nodes if node.op == "call_function"]
    assert (
        "def forward(self, x, more_0, more_1, bias, scale)" in module.code
    ) and torch.ops.higher_order.cond in operators
    assert (torch.ops.aten.sum.default in operators) == ("aten_graph" in options)
    flat, _ = torch._dynamo.export(lambda x: x + 1, X)
    torch.testing.assert_close(flat(X), X + 1)


def test_an_export_that_is_not_ours_is_dynamos():
    def fn(x, config):
        return x * config.factor

    class Config:
        factor = 3

    with burnish.install(default=True):
        module, _ = torch._dynamo.export(lambda x: fn(x, Config()))(X)
        torch.testing.assert_close(module(X), X * 3)
        dynamic = ({0: torch.export.Dim("rows")},)
        module, _ = torch._dynamo.export(lambda x: x.sin() * x.shape[0], dynamic_shapes=dynamic)(X)
        torch.testing.assert_close(module(X[:2]), X[:2].sin() * 2)
