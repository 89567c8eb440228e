"""Frozen weights are packed once. The next call detects every change."""

import copy
from math import isnan

import pytest
import torch

import burnish
from burnish.compiler.provide_guard_watch import new_watch
from burnish.runtime.program import frozen_prologue
from burnish.settings import patch
from burnish.tensors.tensor_types import TensorType

from ..recorded_events import recorded


@pytest.fixture(autouse=True, params=[8, 1], ids=["looked up", "watched"])
def watched_after(request, monkeypatch):
    """The number of calls after which a watch of the state is made."""
    monkeypatch.setattr(frozen_prologue, "WATCHED_AFTER", request.param)
    return request.param


def test_a_module_that_does_not_change_is_asked_about_by_one_native_call(watched_after, monkeypatch):
    if new_watch() is None:
        pytest.skip("watches know other Pythons")
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = burnish.compile(model)
    asked = []
    looked_up = frozen_prologue.FrozenProgram.looked_up
    monkeypatch.setattr(
        frozen_prologue.FrozenProgram, "looked_up", lambda self, inputs: asked.append(1) or looked_up(self, inputs)
    )
    with torch.no_grad(), patch(never_slower=False):
        for _ in range(20):
            compiled(x)
        assert watched_after <= len(asked) <= watched_after + 2
        in_place(model)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        assert len(asked) > watched_after


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_small_bias_that_changes_past_the_counter(outputs):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, outputs, 1), torch.nn.BatchNorm2d(outputs)).eval()
    compiled, x = burnish.compile(model), torch.randn(2, 4, 8, 8)
    with torch.no_grad(), patch(never_slower=False):
        for _ in range(12):
            compiled(x)
        model[0].bias.data[outputs - 1] = 5.0
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


class OfWeightsAlone(torch.nn.Module):
    """Learned queries that attend to one another, a grid that is convolved, a sequence that is known: each needs memory
    of its own while it runs."""

    def __init__(self):
        super().__init__()
        self.queries = torch.nn.Parameter(torch.randn(1, 4, 256, 32))
        self.grid = torch.nn.Parameter(torch.randn(1, 64, 16, 16))
        self.sequence = torch.nn.Parameter(torch.randn(5, 2, 8))
        self.convolved, self.remembered = torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.LSTM(8, 16)

    def forward(self, x):
        attended = torch.nn.functional.scaled_dot_product_attention(self.queries, self.queries, self.queries)
        return self.convolved(self.convolved(self.grid)) + x, self.remembered(self.sequence)[0] * x, attended - x


def test_work_of_weights_alone_may_need_memory_meanwhile():
    model, x = OfWeightsAlone().eval(), torch.randn(())
    compiled = burnish.compile(model)
    with torch.no_grad(), patch(never_slower=False):
        for k in range(12):
            if k % 4 == 3:
                for weight in model.parameters():
                    weight.mul_(0.5)
            for found, expected in zip(compiled(x), model(x), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_values_of_constants_alone_are_computed_once():
    def fn():
        return torch.arange(6.0).reshape(2, 3) @ torch.ones(3, 2) + 1

    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for _ in range(12):
            torch.testing.assert_close(compiled(), fn())


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 8 * 8, 32),
        torch.nn.GELU(),
        torch.nn.Linear(32, 4),
    ).eval()


def in_place(model):
    with torch.no_grad():
        model[4].weight.add_(1)


def past_the_counter(model):
    model[4].weight.data *= 2


def manual_descent(model):
    model[0].weight.data -= 0.1 * torch.rand_like(model[0].weight)


def other_data(model):
    model[6].weight.data = torch.randn(4, 32)


def other_parameter(model):
    model[6].weight = torch.nn.Parameter(torch.randn(4, 32))


def loaded(model):
    model.load_state_dict(
        {
            name: torch.rand_like(value, dtype=torch.float32).to(value.dtype)
            for name, value in model.state_dict().items()
        }
    )


def optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()


def running_statistics(model):
    model.train()
    model(torch.randn(4, 3, 8, 8) * 3 + 1)
    model.eval()


CHANGES = [
    in_place,
    past_the_counter,
    manual_descent,
    other_data,
    other_parameter,
    loaded,
    optimizer_step,
    running_statistics,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_weight_is_seen_by_the_next_call(change):
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = burnish.compile(model)
    with torch.no_grad():
        for _ in range(3):
            before = compiled(x)
        torch.testing.assert_close(before, model(x))
    change(model)
    with torch.no_grad():
        after = compiled(x)
        torch.testing.assert_close(after, model(x))
    assert not torch.equal(before, after)


def wrapped_again(model):
    """The same memory, written once by another counter than the one that counted the writes of before."""
    weight = model[4].weight.data
    weight[:, 1::7] = 3.0
    model[4].weight = torch.nn.Parameter(weight)


def copied_over(model):
    model[4].weight = torch.nn.Parameter(model[4].weight.data.copy_(torch.randn(32, 512)))


@pytest.mark.parametrize("change", [wrapped_again, copied_over], ids=lambda change: change.__name__)
@pytest.mark.parametrize("calls", [1, 12])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_another_parameter_of_the_same_memory_is_seen(change, calls, mode):
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = burnish.compile(model)
    with patch(never_slower=False):
        for _ in range(3):
            with torch.no_grad():
                model[4].weight.copy_(torch.randn(32, 512))
            with mode():
                for _ in range(calls):
                    before = compiled(x)
            change(model)
            with mode():
                after = compiled(x)
                torch.testing.assert_close(after, model(x))
            assert not torch.equal(before, after)
    assert burnish.was_compiled(compiled)


def test_without_native_guards_it_is_seen_too():
    with patch(native_guards=False):
        for calls in (1, 12):
            test_another_parameter_of_the_same_memory_is_seen(wrapped_again, calls, torch.no_grad)


def test_weights_that_are_other_tensors_in_each_call_are_not_packed_for_ever(monkeypatch):
    packed = []
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = burnish.compile(model)
    weights = dict(model.state_dict())
    with torch.no_grad(), patch(never_slower=False):
        for _ in range(3):
            compiled(x)
        refreshed = frozen_prologue.FrozenProgram.refreshed

        def noted(self, inputs):
            results = refreshed(self, inputs)
            packed.append(results.made is not None)
            return results

        monkeypatch.setattr(frozen_prologue.FrozenProgram, "refreshed", noted)
        for _ in range(40):
            given = {name: weight.data for name, weight in weights.items()}
            torch.testing.assert_close(torch.func.functional_call(compiled, given, (x,)), model(x))
    assert 0 < packed.count(True) <= frozen_prologue.MOST_RENEWALS and not packed[-1]


def test_slices_of_one_tensor_are_each_packed_once(monkeypatch):
    made = []
    refreshed = frozen_prologue.FrozenProgram.refreshed
    monkeypatch.setattr(
        frozen_prologue.FrozenProgram, "refreshed", lambda self, inputs: made.append(self) or refreshed(self, inputs)
    )
    flat, x = torch.randn(3, 64, 64), torch.randn(2, 64)
    layers = [torch.nn.Linear(64, 64).eval() for _ in flat]
    for layer, weight in zip(layers, flat, strict=True):
        layer.weight = torch.nn.Parameter(weight)
    compiled = burnish.compile(lambda layer, x: layer(x))
    with torch.no_grad(), patch(never_slower=False):
        for _ in range(5):
            for layer in layers:
                torch.testing.assert_close(compiled(layer, x), layer(x))
    assert 0 < len(made) <= 4


def test_two_models_of_one_class_keep_their_own_weights():
    first, x = network(), torch.randn(2, 3, 8, 8)
    second = copy.deepcopy(first)
    in_place(second)
    compiled = [burnish.compile(model) for model in (first, second)]
    with torch.no_grad():
        for _ in range(3):
            for model, run in zip((first, second), compiled, strict=True):
                torch.testing.assert_close(run(x), model(x))


def test_a_result_that_is_made_from_weights_alone_belongs_to_the_caller():
    weight = torch.nn.Linear(4, 4)
    compiled = burnish.compile(lambda x: (weight.weight * 2, x + 1))
    with torch.no_grad():
        for _ in range(4):
            doubled, _ = compiled(torch.ones(3))
            torch.testing.assert_close(doubled, weight.weight * 2)
            doubled.zero_()


def padded_network():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(32, 16, 3, padding=1), torch.nn.ReLU()).eval()
    return model, torch.randn(1, 32, 28, 28)


@pytest.fixture
def own_kernels_only(monkeypatch):
    """Wherever a kernel of our own can compute a convolution, it does."""
    from burnish.schedule.library import choose_calls

    if (
        choose_calls.own_candidate(
            choose_calls.ConvSpec(
                TensorType.contiguous((1, 32, 28, 28), torch.float32),
                TensorType.contiguous((16, 32, 3, 3), torch.float32),
                None,
                None,
                None,
                (1, 1),
                (1, 1),
                (1, 1),
                is_frozen=True,
            )
        )
        is None
    ):
        pytest.skip("there are no kernels of our own for this machine")

    def choose(spec, **_):
        candidate = choose_calls.own_candidate(spec)
        return choose_calls.Choice(candidate, 1e-9, {choose_calls.OWN: 1e-9})

    monkeypatch.setattr(choose_calls, "choose", choose)


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
def test_an_infinite_weight_reaches_no_further_than_in_eager(special, own_kernels_only):
    model, x = padded_network()
    compiled = burnish.compile(model)
    with torch.no_grad(), burnish.settings.patch(never_slower=False):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
        usual = model[0].weight[3, 2, 0, 0].item()
        # A corner of the window: at the upper and left border it covers padding, which is not multiplied.
        model[0].weight[3, 2, 0, 0] = special
        want = model(x)
        assert not want.isfinite().all() and (want[0, 3].isfinite().any() or isnan(special))
        for _ in range(2):
            torch.testing.assert_close(compiled(x), want, equal_nan=True)
        model[0].weight[3, 2, 0, 0] = usual
        torch.testing.assert_close(compiled(x), model(x))
        assert compiled(x).isfinite().all()


def test_a_rest_that_reads_no_input():
    """The rest of the computation after the frozen prologue: random numbers, and the frozen values."""
    made = torch.tensor([1.0, 2.0, 1.0])

    class Filter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return torch.softmax(self.weight @ self.weight.t(), -1)

    with recorded("graph.failed", datum="text") as failed:
        with torch.no_grad(), patch(never_slower=False, on_error="raise", eager_random=True):
            for fn in (Filter().eval(), lambda x: torch.rand(3) * (made.view(-1, 1) @ made.view(1, -1)).sum(0)):
                compiled = burnish.compile(fn)
                for seed in range(4):
                    torch.manual_seed(seed)
                    want = fn(torch.ones(2))
                    torch.manual_seed(seed)
                    torch.testing.assert_close(compiled(torch.ones(2)), want)
    assert not failed
