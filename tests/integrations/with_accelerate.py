"""Accelerate with BurnishPlugin: what it prepares, unwraps and saves is as with its own plugin, and really compiled."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import (
    DynamoBackend,
    TorchDynamoPlugin,
    compile_regions,
    extract_model_from_parallel,
    has_compiled_regions,
    is_compiled_module,
)
from safetensors.torch import load_file
from torch import nn

import burnish
from burnish.integrations.accelerate import BurnishPlugin

X, Y = torch.randn(16, 8), torch.randint(0, 3, (16,))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


@pytest.fixture(autouse=True)
def no_state_left(monkeypatch):
    for name in ("BACKEND", "MODE", "USE_FULLGRAPH", "USE_DYNAMIC", "USE_REGIONAL_COMPILATION"):
        monkeypatch.delenv(f"ACCELERATE_DYNAMO_{name}", raising=False)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    yield
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()


def accelerator(plugin=None, **kwargs):
    return Accelerator(cpu=True, dynamo_plugin=plugin or BurnishPlugin(), **kwargs)


def train(accelerator, model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for i in range(steps):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(X), Y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return model, loss.detach()


def states(model):
    return {name.replace("_orig_mod.", ""): value for name, value in model.state_dict().items()}


# ---- the plugin


def test_its_arguments_reach_burnish():
    kwargs = BurnishPlugin(backend="inductor", mode="max-autotune", fullgraph=True, dynamic=False).to_kwargs()
    assert kwargs == {
        "backend": "burnish",
        "mode": "max-autotune",
        "fullgraph": True,
        "dynamic": False,
        "options": None,
    }
    model = accelerator(BurnishPlugin(fullgraph=True, options={"eager_random": True})).prepare(Net())
    assert model._kwargs == {
        "backend": "burnish",
        "mode": None,
        "fullgraph": True,
        "dynamic": None,
        "options": {"eager_random": True},
    }


def test_environment_variables_are_theirs(monkeypatch):
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", "reduce-overhead")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_FULLGRAPH", "true")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_DYNAMIC", "true")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")
    found, theirs = BurnishPlugin(), TorchDynamoPlugin()
    assert vars(found) == vars(theirs) and found.use_regional_compilation
    kwargs = found.to_kwargs()
    assert kwargs.pop("backend").backend == "aot_eager"
    assert kwargs == {"mode": "reduce-overhead", "fullgraph": True, "dynamic": True, "options": None}


def test_no_backend_compiles_nothing(monkeypatch):
    net = Net()
    assert accelerator(BurnishPlugin(backend="no")).prepare(net) is net
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    assert BurnishPlugin().backend is DynamoBackend.NO


def test_disable_compiles_nothing():
    net = Net()
    assert accelerator(BurnishPlugin(disable=True)).prepare(net) is net


def test_backends_that_burnish_has_not_are_refused():
    with pytest.raises(burnish.UserError, match="no such backend"):
        BurnishPlugin(backend="ofi")


def test_it_is_a_plugin_of_theirs_that_copies_and_prints():
    plugin = BurnishPlugin(fullgraph=True)
    assert isinstance(plugin, TorchDynamoPlugin) and "fullgraph=True" in repr(plugin)
    assert copy.deepcopy(plugin) == pickle.loads(pickle.dumps(plugin)) == plugin
    assert plugin.to_dict()["backend"] == "inductor"


# ---- prepare


@pytest.mark.parametrize("regional", [False, True])
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}], ids=str)
def test_training_gives_eagers_weights(regional, options):
    net = Net()
    twin = copy.deepcopy(net)
    plain, wanted = train(accelerator(BurnishPlugin(backend="no"), **options), twin)
    AcceleratorState._reset_state()
    model, loss = train(accelerator(BurnishPlugin(use_regional_compilation=regional), **options), net)
    tolerance = {"rtol": 0.02, "atol": 0.02} if options.get("mixed_precision") else {}
    torch.testing.assert_close(loss, wanted, **tolerance)
    torch.testing.assert_close(states(model), states(plain), **tolerance)
    assert burnish.was_compiled(model)
    assert is_compiled_module(model) is not regional and has_compiled_regions(model)


def test_mixed_precision_is_part_of_the_compiled_code():
    from burnish import events

    graphs = []
    stop = events.subscribe(lambda event: graphs.append(event.data["graph_module"]) if event.kind == "graph" else None)
    running = accelerator(mixed_precision="bf16")
    for make in (Net, lambda: burnish.compile(Net()), lambda: burnish.compile_(Net())):
        graphs.clear()
        model = running.prepare(make())
        out = model(X)
        assert out.dtype == torch.float32 and burnish.was_compiled(model)
        torch.testing.assert_close(model(X), out)
        inside = [module for module in model.modules() if isinstance(module, Net)][0]
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(out, Net.forward(inside, X).float(), rtol=0.02, atol=0.02)
        assert any("_enter_autocast" in graph.code or "autocast" in graph.code for graph in graphs)
    stop()


def test_prepare_does_not_compile_compiled_modules_again():
    compiled = burnish.compile(Net(), fullgraph=True)
    model = accelerator().prepare(compiled)
    assert model is compiled and accelerator().prepare(model) is model
    model(X)
    assert burnish.was_compiled(model)


def test_accelerates_own_plugin_comes_to_us_where_we_are_the_default():
    with burnish.install(default=True):
        model = accelerator(TorchDynamoPlugin(backend="inductor")).prepare(Net())
        assert type(model).__module__ == "burnish.frontend.compiled_module" and is_compiled_module(model)
        model(X)
        assert burnish.was_compiled(model)


def test_accelerates_own_plugin_takes_our_name_once_burnish_is_installed(monkeypatch):
    with burnish.install():
        for plugin in (TorchDynamoPlugin(backend="burnish"), TorchDynamoPlugin(backend="burnish", fullgraph=True)):
            model = accelerator(plugin).prepare(Net())
            assert type(model).__module__ == "burnish.frontend.compiled_module"
            model(X)
            assert burnish.was_compiled(model)
            AcceleratorState._reset_state()
        monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "burnish")
        model, loss = train(Accelerator(cpu=True), Net())
        assert burnish.was_compiled(model)
    member = DynamoBackend("BURNISH")
    assert member is DynamoBackend.BURNISH is pickle.loads(pickle.dumps(member)) and member in list(DynamoBackend)
    assert str(member) == DynamoBackend.list()[-1] == "BURNISH" and member is not DynamoBackend.NO


@pytest.mark.parametrize("first", ["import accelerate\nburnish.install()", "burnish.install()\nimport accelerate"])
def test_the_order_of_installing_and_importing_accelerate_does_not_matter(first):
    program = f"""
import burnish
{first}
from accelerate.utils import TorchDynamoPlugin
print(TorchDynamoPlugin(backend="burnish").to_kwargs()["backend"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split()[-1].lower().endswith("burnish")


# ---- unwrapping and saving


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_unwrap_keeps_the_compilation_or_takes_it_off(precision):
    net = Net()
    running = accelerator(mixed_precision=precision)
    model = running.prepare(net)
    want = model(X)
    assert running.unwrap_model(model, keep_torch_compile=True) is model
    model(X)
    assert burnish.was_compiled(model), "the query does not discard compiled code"
    assert running.unwrap_model(model, keep_torch_compile=False) is net
    torch.testing.assert_close(net(X), want, rtol=0.02, atol=0.02)
    plain = running.unwrap_model(model, keep_fp32_wrapper=False, keep_torch_compile=False)
    assert plain is net and plain.forward == Net.forward.__get__(net)


def test_unwrapping_a_model_compiled_before_prepare_gives_the_plain_forward():
    net = Net()
    running = accelerator(mixed_precision="bf16")
    model = running.prepare(burnish.compile(net))
    model(X)
    plain = running.unwrap_model(model, keep_fp32_wrapper=False, keep_torch_compile=False)
    assert plain is net
    torch.testing.assert_close(plain(X), Net.forward(net, X))


@pytest.mark.parametrize("regional", [False, True])
def test_saved_models_have_clean_keys(tmp_path, regional):
    net = Net()
    running = accelerator(BurnishPlugin(use_regional_compilation=regional))
    model = running.prepare(net)
    unwrapped = running.unwrap_model(model, keep_torch_compile=False)
    assert unwrapped is net
    assert list(running.get_state_dict(unwrapped)) == list(net.state_dict())
    running.save_model(unwrapped, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    torch.testing.assert_close(saved, dict(net.state_dict()))


def test_a_compiled_model_that_is_saved_as_it_is_has_the_keys_it_has_with_torch_compile(tmp_path):
    net = Net()
    running = accelerator()
    theirs = torch.compile(net, backend="eager")
    model = running.prepare(net)
    wanted = running.get_state_dict(theirs)
    found = running.get_state_dict(model)
    assert list(found) == list(wanted)
    torch.testing.assert_close(dict(found), dict(wanted))
    for each, folder in ((theirs, tmp_path / "theirs"), (model, tmp_path / "ours")):
        running.save_model(each, folder)
    torch.testing.assert_close(
        load_file(tmp_path / "ours" / "model.safetensors"), load_file(tmp_path / "theirs" / "model.safetensors")
    )


def test_state_is_saved_and_loaded(tmp_path):
    running = accelerator()
    model, optimizer = running.prepare(net := Net(), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    running.backward(model(X).sum())
    optimizer.step()
    want = model(X).detach()
    running.save_state(tmp_path)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    assert not torch.allclose(model(X), want)
    running.load_state(tmp_path)
    torch.testing.assert_close(model(X), want)


# ---- regions, with Accelerate's own function


def test_regions_are_compiled_by_us_and_unwrapped_by_accelerate():
    burnish.install()
    net = Net()
    want = net(X)
    regions = compile_regions(net, backend="burnish")
    assert has_compiled_regions(regions) and not is_compiled_module(regions)
    assert is_compiled_module(regions.first) and all(map(is_compiled_module, regions.blocks))
    torch.testing.assert_close(regions(X), want)
    assert burnish.was_compiled(regions.blocks[1])
    assert all(a is b for a, b in zip(regions.parameters(), net.parameters(), strict=True))
    assert extract_model_from_parallel(regions, keep_torch_compile=False) is net
    assert has_compiled_regions(extract_model_from_parallel(regions, keep_torch_compile=True))
