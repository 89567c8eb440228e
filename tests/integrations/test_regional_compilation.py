"""burnish.compile_regions: one capture serves all equal blocks, and each computes with its own parameters."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import burnish
from burnish import events
from burnish.integrations.regional_compilation import repeated_blocks


class Block(nn.Module):
    def __init__(self, number=0, size=32):
        super().__init__()
        self.number = number
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers=6, block=Block):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.layers = nn.ModuleList(block(i) for i in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 3))

    def forward(self, x):
        x = self.embed(x).tanh()
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


X = torch.randn(16, 8)


@pytest.fixture
def segments():
    """Where something was captured."""
    seen = []
    stop = events.subscribe(lambda event: seen.append(str(event.data["where"])) if event.kind == "segment" else None)
    yield seen
    stop()


def captured_blocks(segments):
    return sum("call_block" in where for where in segments)


class Batched(Net):
    def forward(self, x):
        return super().forward(x.view(2, 8, 8))


@pytest.mark.parametrize("kind", [Net, Batched])
@pytest.mark.parametrize("layers", [4, 24])
def test_one_capture_serves_all_blocks(segments, layers, kind):
    net = kind(layers).eval()
    want = copy.deepcopy(net)(X)
    assert burnish.compile_regions(net) is net
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(net(X), want)
    assert captured_blocks(segments) == 1 and len(segments) == 3
    assert burnish.was_compiled(net.layers[-1]) and burnish.was_compiled(net.head)


def test_class_keys_and_signature_stay():
    net = burnish.compile_regions(Net())
    plain = Net()
    assert type(net) is Net and list(net.state_dict()) == list(plain.state_dict())
    assert all(type(layer) is Block for layer in net.layers)


def test_each_block_gets_its_own_gradients():
    net = Net()
    twin = copy.deepcopy(net)
    burnish.compile_regions(net)
    for _ in range(3):
        for model in (net, twin):
            model.zero_grad()
            model(X).pow(2).sum().backward()
        for (name, found), wanted in zip(net.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("compile_", [lambda net: net, burnish.compile_regions], ids=["eager", "regions"])
def test_gradients_of_a_block_are_there_before_the_blocks_below_it_have_begun(compile_):
    """So DistributedDataParallel sends them while the rest is computed."""
    net, order = compile_(Net(4)), []

    def reached(module, args, output):
        output.register_hook(lambda gradient: order.append(("reached", module.number)))

    for block in net.layers:
        block.register_forward_hook(reached)
        for parameter in block.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda parameter, number=block.number: order.append(("given", number))
            )
    for _ in range(3):
        order.clear()
        net(X).sum().backward()
        assert list(dict.fromkeys(order)) == [(what, i) for i in (3, 2, 1, 0) for what in ("reached", "given")]
    assert burnish.was_compiled(net) is (compile_ is burnish.compile_regions)


def test_a_changed_parameter_of_one_block_is_seen():
    net = burnish.compile_regions(Net().eval())
    with torch.no_grad():
        for _ in range(3):
            net(X)
        for change in (lambda w: w.add_(1), lambda w: setattr(w, "data", w.data * 2)):
            change(net.layers[2].up.weight)
            for _ in range(2):
                torch.testing.assert_close(net(X), copy.deepcopy(net)(X))
        net.layers[1], net.layers[4] = net.layers[4], net.layers[1]
        torch.testing.assert_close(net(X), copy.deepcopy(net)(X))


def test_dropped_blocks_are_freed():
    net = burnish.compile_regions(Net().eval())
    with torch.no_grad():
        for _ in range(3):
            net(X)
    gone = weakref.ref(net.layers[0].up.weight)
    net.layers[0] = net.layers[1]
    gc.collect()
    assert gone() is None


def test_a_number_that_steers_each_block_is_followed():
    class Numbered(Block):
        def forward(self, x):
            return super().forward(x) * (self.number + 1) if self.number % 3 else super().forward(x) - self.number

    net = Net(12, Numbered).eval()
    want = copy.deepcopy(net)(X)
    burnish.compile_regions(net)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(net(X), want)
    assert burnish.was_compiled(net.layers[11])


def test_hooks_of_one_block_are_its_own():
    net = burnish.compile_regions(Net().eval())
    with torch.no_grad():
        net(X)
        ran = []
        net.layers[3].register_forward_hook(lambda module, args, output: ran.append(module.number))
        for _ in range(3):
            net(X)
    assert ran == [3, 3, 3]


def test_training_and_evaluation_differ_in_dropout():
    class Dropping(Block):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x), 0.5, self.training)

    net = burnish.compile_regions(Net(4, Dropping))
    net.train()
    assert not torch.allclose(net(X), net(X))
    net.eval()
    torch.testing.assert_close(net(X), net(X))


def test_sequences_count_as_lists_and_single_blocks_do_not():
    vision = nn.Sequential(nn.Linear(8, 32), nn.Sequential(*[Block() for _ in range(3)]), nn.ModuleList([Block()]))
    assert [len(group) for group in repeated_blocks(vision)] == [3]
    mlp = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    assert not list(repeated_blocks(mlp)), "layers without parts are no blocks"
    want = mlp(X)
    torch.testing.assert_close(burnish.compile_regions(mlp)(X), want)
    assert burnish.was_compiled(mlp)


def test_disable_takes_it_back_and_copies_are_plain(segments):
    net = burnish.compile_regions(Net())
    net(X)
    assert burnish.was_compiled(net)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(copied(X), net(X))
        assert not burnish.was_compiled(copied)
    assert burnish.compile_regions(net, disable=True) is net
    segments.clear()
    net(X)
    assert not segments and not burnish.was_compiled(net)


def test_a_model_compiled_as_a_whole_goes_through_its_regions(segments):
    net = burnish.compile_regions(Net().eval())
    compiled = burnish.compile(net, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), net(X))


def test_stances_hold_for_regions():
    net = burnish.compile_regions(Net())
    with burnish.set_stance("force_eager"):
        net(X)
        assert not burnish.was_compiled(net)


def test_only_modules_have_regions():
    with pytest.raises(burnish.UserError, match="takes a module"):
        burnish.compile_regions(torch.sin)
