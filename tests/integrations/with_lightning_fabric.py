"""Lightning's Fabric with compiled modules: set up, saved, loaded and trained as eager ones."""

import copy

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.wrappers import _FabricModule, _unwrap_compiled, _unwrap_objects, is_wrapped
from torch import nn

import burnish
from burnish.frontend.compiled_module import CompiledModule

X, Y = torch.randn(16, 8), torch.randint(0, 3, (16,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.scale = 1.0

    def forward(self, x):
        return self.layers(x) * self.scale

    def loss(self, x, y):
        return nn.functional.cross_entropy(self(x), y)


@pytest.fixture
def fabric():
    return Fabric(accelerator="cpu", devices=1)


def train(fabric, model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()
    return model, loss.detach()


@pytest.mark.parametrize(
    "compile_",
    [lambda net: burnish.compile(net), lambda net: torch.compile(net, backend="burnish"), burnish.compile_],
    ids=["burnish.compile", "torch.compile", "compile_"],
)
def test_training_gives_eagers_weights(fabric, compile_):
    burnish.install()
    net = Net()
    twin = copy.deepcopy(net)
    plain, wanted = train(fabric, twin)
    compiled, loss = train(fabric, compile_(net))
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(dict(compiled.state_dict()), dict(plain.state_dict()))
    assert burnish.was_compiled(compiled)


@pytest.mark.parametrize("reapply", [True, False])
def test_the_wrappers_are_in_the_order_fabric_wants(fabric, reapply):
    net = Net()
    compiled = burnish.compile(net, fullgraph=True)
    model = fabric.setup(compiled, _reapply_compile=reapply)
    assert is_wrapped(model)
    inside, kwargs = _unwrap_compiled(model._forward_module)
    assert isinstance(model, _FabricModule) and kwargs["backend"] == "burnish" and kwargs["fullgraph"] is True
    assert inside is net and _unwrap_objects(model) is net
    assert isinstance(model._forward_module, CompiledModule)
    assert (model._forward_module is compiled) is not reapply
    torch.testing.assert_close(model(X), net(X))
    assert burnish.was_compiled(model)


@pytest.mark.parametrize("reapply", [True, False])
def test_states_round_trip_and_keys_are_clean(fabric, tmp_path, reapply):
    net = Net()
    model = fabric.setup(burnish.compile(net), _reapply_compile=reapply)
    # Left as it is by Fabric, a compiled module has the keys of a compiled module, with torch.compile as well.
    wanted = list(net.state_dict() if reapply else burnish.compile(net).state_dict())
    assert list(model.state_dict()) == wanted
    fabric.save(tmp_path / "state.ckpt", {"model": model, "step": 3})
    kept = torch.load(tmp_path / "state.ckpt", weights_only=True)
    assert list(kept["model"]) == list(net.state_dict())
    other = fabric.setup(burnish.compile(Net()), _reapply_compile=reapply)
    rest = fabric.load(tmp_path / "state.ckpt", {"model": other})
    assert rest == {"step": 3}
    torch.testing.assert_close(other(X), net(X))
    plain = Net()
    plain.load_state_dict(kept["model"])
    torch.testing.assert_close(plain(X), net(X))


def test_attributes_and_methods_are_reached_through_both_wrappers(fabric):
    net = Net()
    model = fabric.setup(burnish.compile(net))
    assert model.scale == 1.0
    model.scale = 2.0
    assert net.scale == 2.0
    torch.testing.assert_close(model(X), net(X))
    model.mark_forward_method("loss")
    torch.testing.assert_close(model.loss(X, Y), net.loss(X, Y))
    model.eval()
    assert not net.training and not model.training


def test_modules_and_optimizers_are_set_up_separately(fabric):
    model = fabric.setup_module(burnish.compile(Net()))
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1))
    before = copy.deepcopy(model.state_dict())
    fabric.backward(model(X).sum(), model=model)
    with fabric.no_backward_sync(model, enabled=False):
        optimizer.step()
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_loss_of_a_step_compiled_as_a_whole_is_given_back(fabric):
    net = Net()
    twin = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer = fabric.setup(net, optimizer)

    @burnish.compile
    def loss_of(x, y):
        return nn.functional.cross_entropy(model(x), y)

    plain = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = loss_of(X, Y)
        fabric.backward(loss)
        optimizer.step()
        plain.zero_grad()
        wanted = twin.loss(X, Y)
        wanted.backward()
        plain.step()
        torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize(
    "precision",
    ["bf16-mixed", *[pytest.param(precision, marks=pytest.mark.slow) for precision in ("bf16-true", "64-true")]],
)
def test_precision_plugins_apply(precision):
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    net = Net()
    twin = copy.deepcopy(net)
    plain, compiled = fabric.setup(twin), fabric.setup(burnish.compile(net))
    for _ in range(3):
        found, wanted = compiled(X), plain(X)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)
    assert burnish.was_compiled(compiled)


def test_a_compiled_module_with_a_backend_of_the_users_is_compiled_by_it_again(fabric):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    model = fabric.setup(burnish.compile(Net(), backend=backend))
    model(X)
    assert len(graphs) == 1


def test_lightning_imported_after_install_still_lets_ours_through():
    # Lightning was imported before; its changes to torch.compile are repeated here, on top of ours.
    from lightning.fabric.wrappers import _capture_compile_kwargs

    original = torch.compile
    try:
        burnish.install()
        torch.compile = _capture_compile_kwargs(torch.compile)
        compiled = torch.compile(Net(), backend="burnish", dynamic=False)
        assert isinstance(compiled, CompiledModule)
        assert compiled._compile_kwargs["backend"] == "burnish" and compiled._compile_kwargs["dynamic"] is False
        model = Fabric(accelerator="cpu", devices=1).setup(compiled)
        assert isinstance(model._forward_module, CompiledModule)
    finally:
        torch.compile = original
