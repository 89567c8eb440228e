"""A compiled module is the module in everything but how it computes."""

import copy
import inspect
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import burnish

from .recording import Recording


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
    code = ("import torch; from tests.api.test_module import Net; m = torch.compile(Net()); "
            "print(list(m.state_dict()), [name for name, _ in m.named_parameters()])")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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


def test_training_mode_is_one_state_whoever_is_asked(net, compiled):
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


def test_repr_shows_the_module_inside(compiled):
    assert repr(compiled).startswith("CompiledModule(\n  (_orig_mod): Net(")


def test_moving_and_converting_changes_the_original_and_compiles_anew(net, compiled):
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

    torch.testing.assert_close(results(lambda module: burnish.compile(module, backend="eager")),
                               results(lambda module: module))
