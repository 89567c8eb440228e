"""The code around regionally compiled blocks: captured with the blocks as calls, or left as it is."""

import contextvars
import gc
import weakref

import pytest
import torch
from torch import nn

import burnish
from burnish.integrations import regional_trunk_graph

from ..recorded_events import recorded
from ..runtime.concurrent_threads import at_once


class Block(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.norm, self.inner, self.drop = nn.LayerNorm(size), nn.Linear(size, size), nn.Dropout(0.5)

    def forward(self, x, scale=1.0, shift=None):
        y = self.drop(torch.tanh(self.inner(self.norm(x)))) * scale
        return x + y if shift is None else x + y + shift[0]


class Net(nn.Module):
    def __init__(self, layers=3, block=Block):
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 2)
        self.factor = 1.5

    def forward(self, x):
        shift = torch.arange(16, dtype=x.dtype) / 16
        x = self.first(x) * self.factor
        for block in self.blocks:
            x = block(x, scale=self.factor, shift=(shift, None))
        return self.last(x), shift.sum()


X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def dropped():
    with recorded("trunk.dropped") as seen:
        yield seen


def program_of(model):
    return model._compiled_call_impl.__burnish_program__


def plainly(model, *args):
    kept = {
        module: module.__dict__.pop("_compiled_call_impl")
        for module in model.modules()
        if "_compiled_call_impl" in module.__dict__
    }
    try:
        return model(*args)
    finally:
        for module, impl in kept.items():
            module._compiled_call_impl = impl


def check(model, *args):
    got, want = model(*args), plainly(model, *args)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    return got


def settled(model, *args, calls=regional_trunk_graph.WAITS + 3):
    """A model by regions that has been called often enough."""
    model = burnish.compile_regions(model.eval())
    for _ in range(calls):
        check(model, *args)
    return model


def is_captured(model):
    return bool(program_of(model).entry.segments)


def test_it_is_captured_when_it_has_been_called_in_one_way_for_a_while():
    model = burnish.compile_regions(Net().eval())
    for _ in range(regional_trunk_graph.WAITS):
        check(model, X)
        assert not is_captured(model)
    for _ in range(3):
        check(model, X)
    assert is_captured(model)
    check(model, X + 1)
    assert burnish.was_compiled(model) and len(program_of(model).entry.segments) == 1


def test_no_python_of_the_model_runs_in_between():
    import cProfile
    import pstats

    model = settled(Net(), X)
    with cProfile.Profile() as profile:
        model(X)
    names = {name for _, _, name in pstats.Stats(profile).stats}
    assert is_captured(model) and "forward" not in names


def test_a_block_whose_weights_change_is_seen_at_once(dropped):
    model = settled(Net(), X)
    model.blocks[1].inner.weight.add_(0.5)
    check(model, X)
    model.blocks[2].inner.weight = nn.Parameter(torch.randn(16, 16))
    check(model, X)
    model.load_state_dict(Net().state_dict())
    check(model, X)
    assert is_captured(model) and not dropped


def test_a_hook_on_a_block_runs_and_may_change_its_result(dropped):
    model = settled(Net(), X)
    seen = []
    handle = model.blocks[1].register_forward_hook(lambda module, args, out: seen.append(1) or out * 2)
    for k in range(3):
        check(model, X)
        assert len(seen) == 2 * (k + 1)  # compiled and plain
    assert len(dropped) == 1
    handle.remove()
    for _ in range(regional_trunk_graph.WAITS + 2):
        check(model, X)
    assert is_captured(model) and len(seen) == 6


def test_another_block_in_the_place_of_one():
    model = settled(Net(), X)
    model.blocks[0] = Block().eval()
    check(model, X)
    del model.blocks[1]
    check(model, X)
    model.blocks.append(Net().eval().blocks[0])
    check(model, X)


def test_replaced_blocks_are_freed():
    model = settled(Net(), X)
    old = [weakref.ref(block) for block in model.blocks]
    model.blocks = nn.ModuleList(Block() for _ in range(3))
    settled(model, X)
    gc.collect()
    assert is_captured(model) and not any(reference() for reference in old)


def test_reads_of_the_surrounding_code_are_guarded():
    model = settled(Net(), X)
    model.factor = 0.5
    check(model, X)
    model.last = nn.Linear(16, 5)
    assert check(model, X)[0].shape == (4, 5)
    model.first.weight.mul_(2)
    check(model, X)


def test_training_goes_through_each_block_by_itself():
    model, other = settled(Net(), X), Net().eval()
    other.load_state_dict(model.state_dict())
    with torch.enable_grad():
        model(X)[0].sum().backward()
        other(X)[0].sum().backward()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    check(model, X)


def test_dropout_that_is_switched_on():
    model = settled(Net(), X)
    model.train()
    a, b = model(X)[0], model(X)[0]
    assert not torch.equal(a, b)
    model.eval()
    check(model, X)


class Counting(Block):
    calls = 0

    def forward(self, x, scale=1.0, shift=None):
        self.calls += 1
        return super().forward(x, scale, shift)


class Writing(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, scale=1.0, shift=None):
        self.seen += x.mean()
        return super().forward(x, scale, shift) + self.seen


class Branching(Block):
    def forward(self, x, scale=1.0, shift=None):
        return super().forward(x, scale, shift) if x.sum() > 0 else x


class Itself(Block):
    def forward(self, x, scale=1.0, shift=None):
        return x


class Part(Block):
    def forward(self, x, scale=1.0, shift=None):
        return super().forward(x, scale, shift), x[:, :4]


@pytest.mark.falls_back("refused", only=r"Counting|Branching|Itself")
@pytest.mark.parametrize("block", [Counting, Branching, Itself])
def test_a_block_that_does_more_than_compute_is_never_skipped(block):
    model = settled(Net(block=block), X)
    assert not is_captured(model)
    check(model, -X)
    if block is Counting:
        before = model.blocks[0].calls
        model(X)
        assert model.blocks[0].calls == before + 1


@pytest.mark.falls_back("refused")
def test_blocks_that_write_to_buffers_write_once_a_call():
    model = burnish.compile_regions(Net(block=Writing).eval())
    other = Net(block=Writing).eval()
    other.load_state_dict(model.state_dict())
    for k in range(regional_trunk_graph.WAITS + 4):
        torch.testing.assert_close(model(X + k), other(X + k))
    torch.testing.assert_close(model.state_dict(), other.state_dict())
    assert not is_captured(model)


class Parts(Net):
    def forward(self, x):
        x = self.first(x)
        parts = []
        for block in self.blocks:
            x, part = block(x)
            parts.append(part)
        return self.last(x), parts


@pytest.mark.falls_back("refused")
def test_a_block_that_returns_memory_of_its_input():
    model = settled(Parts(block=Part), X)
    assert not is_captured(model)


def test_a_block_that_raises_raises_where_it_is_called():
    class Lookup(Block):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 16)

        def forward(self, x, index):
            return super().forward(x) + self.table(index)

    class Looking(Net):
        def forward(self, x, index):
            x = self.first(x)
            for block in self.blocks:
                x = block(x, index + 0)
            return self.last(x)

    good, bad = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 2, 9])
    model = settled(Looking(block=Lookup), X, good)
    assert is_captured(model)
    for _ in range(4):
        with pytest.raises(IndexError):
            model(X, bad)
        check(model, X, good)


class Caching(Net):
    def forward(self, x, cache):
        x = self.first(x)
        for k, block in enumerate(self.blocks):
            x = block(x, cache)
        return self.last(x), k


class WithCache(Block):
    def forward(self, x, cache):
        cache.append(x)
        return super().forward(x)


@pytest.mark.falls_back("refused")
def test_a_block_that_is_given_an_object():
    model = burnish.compile_regions(Caching(block=WithCache).eval())
    for _ in range(regional_trunk_graph.WAITS + 3):
        cache = []
        check(model, X, cache)
        assert len(cache) == 6
    assert not is_captured(model)


class Choosing(Net):
    def forward(self, x):
        y = super().forward(x)[0]
        return y if x.sum() > 0 else -y


@pytest.mark.falls_back("refused")
def test_a_break_in_the_code_around():
    model = settled(Choosing(), X)
    assert not is_captured(model)
    check(model, -X)
    check(model, X)


variable = contextvars.ContextVar("collected", default=None)


class Collecting(Net):
    keeps = False

    def forward(self, x):
        token = variable.set({})
        try:
            return super().forward(x)
        finally:
            if not self.keeps:
                variable.reset(token)


def test_a_context_variable_that_is_put_back():
    model = settled(Collecting(), X)
    assert is_captured(model) and variable.get() is None


@pytest.mark.falls_back("refused")
def test_a_context_variable_that_stays_set():
    model = Collecting()
    model.keeps = True
    model = settled(model, X)
    assert not is_captured(model)
    variable.set(None)
    model(X)
    assert variable.get() == {}
    variable.set(None)


def test_sizes_that_change_from_call_to_call_are_not_captured_for():
    model = burnish.compile_regions(Net().eval())
    for k in range(3 * regional_trunk_graph.WAITS):
        check(model, torch.randn(2 + k % 3, 8))
    assert not is_captured(model)


def test_a_few_sizes_and_no_more():
    model = burnish.compile_regions(Net().eval())
    for size in range(2, 4 + regional_trunk_graph.MOST):
        for _ in range(regional_trunk_graph.WAITS + 3):
            check(model, torch.randn(size, 8))
    assert len(program_of(model).entry.segments) == regional_trunk_graph.MOST


def test_off_again():
    model = settled(Net(), X)
    burnish.compile_regions(model, disable=True)
    check(model, X)
    assert not burnish.was_compiled(model)


def test_reset_and_stances():
    model = settled(Net(), X)
    with burnish.set_stance("force_eager"):
        check(model, X)
    burnish.reset()
    assert not is_captured(model)
    check(model, X)


def test_another_compiler_gets_no_blocks_as_calls():
    targets = []

    def backend(gm, inputs):
        targets.extend(node.target for node in gm.graph.nodes)
        return gm.forward

    model = burnish.compile_regions(Net().eval(), backend=backend)
    for _ in range(regional_trunk_graph.WAITS + 3):
        check(model, X)
    assert not any(getattr(target, "stands_alone", False) for target in targets)


def test_threads():
    model = settled(Net(), X)
    want, wrong = plainly(model, X)[0], []

    def work():
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(model(X)[0], want, rtol=1e-5, atol=1e-5):
                    wrong.append(1)

    at_once(*[work] * 4)
    assert not wrong
