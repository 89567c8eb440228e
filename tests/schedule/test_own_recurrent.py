"""Recurrent layers by own kernels: sizes around tiles and vectors, threads, states, and cases left to eager."""

import pytest
import torch
from torch import nn

import burnish
import burnish.targets.cpu  # noqa: F401  (registers our own kernels)
from burnish.schedule.library import choose_calls
from burnish.schedule.library.autotune_library_calls import candidates, choose
from burnish.schedule.library.call_candidates.recurrent import MOST_SCRATCH, own_recurrent, why_not_recurrent
from burnish.schedule.library.call_specs import RecurrentSpec
from burnish.schedule.library.measure_candidates import bind
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.tensors.tensor_types import TensorType

from ..recorded_events import recorded

pytestmark = pytest.mark.skipif(
    matmul_tiling_and_packing.shape_here() is None, reason="there are no kernels for this machine"
)

BOTH = False, True


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def spec_of(positions, batch, columns, size, is_reversed=BOTH, has_biases=True):
    x = TensorType.contiguous((positions, batch, columns), torch.float32)
    return RecurrentSpec(x, size, is_reversed, has_biases)


def inputs_of(spec):
    return {name: torch.randn(type.shape) for name, type in spec.inputs.items()}


def exact(spec, inputs):
    """In float64, by steps."""
    found, inputs = [], {name: x.double() for name, x in inputs.items()}
    for direction, is_reversed in enumerate(spec.is_reversed):
        weight, hidden_weight, bias, hidden_bias, hidden, cell = (
            inputs.get(f"{name}_{direction}", torch.zeros(()))
            for name in ("weight", "hidden_weight", "bias", "hidden_bias", "hidden", "cell")
        )
        rows = []
        for x in reversed(inputs["x"]) if is_reversed else inputs["x"]:
            gates = x @ weight.T + hidden @ hidden_weight.T + bias + hidden_bias
            enter, forget, new, leave = gates.chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            rows.append(hidden)
        found.append((torch.stack(rows[::-1] if is_reversed else rows), hidden, cell))
    out, hidden, cell = zip(*found, strict=True)
    return torch.cat(out, -1), torch.stack(hidden), torch.stack(cell)


def check(spec):
    inputs = inputs_of(spec)
    eager, mine = candidates(spec)
    with torch.no_grad():
        out, *states = mine.run(*bind(mine, inputs))
        theirs = eager.run(*bind(eager, inputs))
    want, *last = exact(spec, inputs)
    error, allowed = (out - want).norm(), (theirs - want).norm()
    assert error <= 2 * allowed + 1e-7 * want.norm(), (error / want.norm(), allowed / want.norm())
    for state, expected in zip(states, last, strict=True):
        assert (state - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize("size", [1, 3, 4, 8, 15, 16, 17, 33, 40])
@pytest.mark.parametrize("batch", [1, 2, 7, 13, 14, 15, 29])
def test_batches_and_sizes_around_those_of_tiles_and_vectors(batch, size):
    check(spec_of(5, batch, 6, size))


@pytest.mark.parametrize("has_biases", [True, False])
@pytest.mark.parametrize("is_reversed", [(False,), (True,), BOTH])
def test_directions_and_biases(is_reversed, has_biases):
    check(spec_of(7, 4, 10, 20, is_reversed, has_biases))


@pytest.mark.parametrize("positions, columns, size", [(1, 5, 9), (40, 1, 9), (3, 1100, 9), (3, 9, 300)])
def test_long_sums_and_few_positions(positions, columns, size):
    check(spec_of(positions, 3, columns, size))


@pytest.mark.parametrize("is_reversed", [(False,), BOTH])
def test_threads_share_directions_and_rows_of_the_batch(is_reversed):
    spec = spec_of(6, 5, 8, 24, is_reversed)
    inputs, results = inputs_of(spec), []
    for threads in (1, 2, 3, 16):
        torch.set_num_threads(threads)
        candidate = own_recurrent(spec)
        results.append(candidate.run(*bind(candidate, inputs)))
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_special_numbers_are_as_in_eager(special):
    spec = spec_of(4, 2, 3, 5)
    inputs = inputs_of(spec)
    inputs["x"][2, 1, 0] = special
    eager, mine = candidates(spec)
    torch.testing.assert_close(mine.run(*bind(mine, inputs))[0], eager.run(*bind(eager, inputs)), equal_nan=True)


def test_unsupported_recurrent_layers():
    double = RecurrentSpec(TensorType.contiguous((2, 2, 2), torch.float64), 3, BOTH, True)
    assert "float32" in str(why_not_recurrent(double))
    turned = RecurrentSpec(TensorType((4, 3, 2), (2, 8, 1), torch.float32), 3, BOTH, True)
    assert why_not_recurrent(turned) == "x has gaps between its numbers"
    long = spec_of(MOST_SCRATCH // (4 * 2 * 4 * 64) + 1, 1, 2, 64)
    assert why_not_recurrent(long) == "the products of all inputs take too much memory"


# In programs ----------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    def __init__(self, **rest):
        super().__init__()
        self.layers = nn.LSTM(6, 9, **rest)

    def forward(self, x, state=None):
        out, (hidden, cell) = self.layers(x.sin(), state)
        return out * 2, hidden, cell.cos()


@pytest.fixture
def kernels(monkeypatch):
    """The texts of the compiled plans, with our own kernel chosen wherever it is offered."""

    def prefer_own(spec, **rest):
        if not isinstance(spec, RecurrentSpec):
            return choose(spec, **rest)
        return choose(spec, seconds=0.001, accept=lambda candidate: candidate.name == "own")

    monkeypatch.setattr(choose_calls, "choose", prefer_own)
    with recorded("loops", datum="text") as seen, burnish.settings.patch(never_slower=False, on_error="raise"):
        yield seen


def count(texts, what):
    return sum(text.count(what) for text in texts)


@pytest.mark.parametrize("is_given", [False, True], ids=["no state", "state"])
@pytest.mark.parametrize(
    "rest, calls",
    [
        ({}, 1),
        ({"bidirectional": True}, 1),
        ({"num_layers": 3, "batch_first": True}, 3),
        ({"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}, 2),
    ],
    ids=["one way", "both ways", "three layers", "two layers both ways"],
)
def test_it_is_used_in_compiled_programs(kernels, rest, calls, is_given):
    model, x = Tagger(**rest), torch.randn(5, 4, 6)
    layers, batch = model.layers, x.shape[0 if rest.get("batch_first") else 1]
    shape = layers.num_layers * (1 + layers.bidirectional), batch, 9
    state = (torch.randn(shape), torch.randn(shape)) if is_given else None
    compiled = burnish.compile(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x, state), model(x, state))
        assert count(kernels, "run <own>") == calls
        assert count(kernels, "mkldnn_rnn_layer") == count(kernels, "aten.cat") == 0
        model.layers.weight_hh_l0.mul_(0.5)
        torch.testing.assert_close(compiled(x, state), model(x, state))


def test_states_with_other_strides_and_results_that_are_written_to(kernels):
    model, x = Tagger(bidirectional=True), torch.randn(5, 4, 6)
    state = tuple(torch.randn(9, 4, 2).permute(2, 1, 0) for _ in range(2))
    compiled = burnish.compile(model, fullgraph=True)
    with torch.no_grad():
        first = compiled(x, state)
        expected = model(x, state)
        torch.testing.assert_close(first, expected)
        again = compiled(x, state)
        again[1].zero_()
        torch.testing.assert_close(first, expected)
        torch.testing.assert_close(compiled(x, state), expected)
    assert count(kernels, "run <own>") == 1


def test_directions_whose_results_are_read_one_by_one_are_layers_of_their_own(kernels):
    weights = [torch.randn(12, 5), torch.randn(12, 3), torch.randn(12), torch.randn(12)]
    model = nn.Module()
    for number, weight in enumerate(weights * 2):
        model.register_parameter(f"p{number}", nn.Parameter(weight.clone()))

    def forward(x, hidden, cell):
        made = []
        for is_reversed, part in ((False, 0), (True, 4)):
            own_weights = [getattr(model, f"p{number}") for number in range(part, part + 4)]
            made.append(
                torch.ops.aten.mkldnn_rnn_layer.default(
                    x, *own_weights, hidden, cell, is_reversed, [], 2, 3, 1, True, True, False, False
                )[:3]
            )
        return made

    model.forward = forward
    x, hidden, cell = torch.randn(4, 2, 5), torch.randn(2, 3), torch.randn(2, 3)
    compiled = burnish.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, hidden, cell), model(x, hidden, cell))
    assert count(kernels, "run <own>") == 2


def test_weights_that_may_change_stay_with_the_library(kernels):
    layer, x = nn.LSTM(4, 6), torch.randn(3, 2, 4)
    compiled = burnish.compile(lambda x, w: torch.func.functional_call(layer, w, (x,))[0] * 2, fullgraph=True)
    weights = {name: w.detach() * 2 for name, w in layer.named_parameters()}
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weights), torch.func.functional_call(layer, weights, (x,))[0] * 2)
    assert count(kernels, "run <own>") == 0


def test_where_eagers_kernel_is_faster_it_stays(monkeypatch):
    monkeypatch.setattr(
        choose_calls,
        "choose",
        lambda spec, **rest: choose(spec, seconds=0.001, accept=(lambda candidate: candidate.name != "own")),
    )
    model, x = Tagger(num_layers=2, bidirectional=True), torch.randn(5, 4, 6)
    with torch.no_grad(), burnish.settings.patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(model, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))


def test_training_keeps_eagers_kernel(kernels):
    model, x = Tagger(bidirectional=True), torch.randn(5, 4, 6)
    compiled = burnish.compile(model, fullgraph=True)
    sum(part.sum() for part in compiled(x)).backward()
    mine = [p.grad for p in model.parameters()]
    model.zero_grad()
    sum(part.sum() for part in model(x)).backward()
    torch.testing.assert_close(mine, [p.grad for p in model.parameters()])
    assert count(kernels, "run <own>") == 0


def test_sequences_of_any_length_keep_eagers_kernel(kernels):
    model = Tagger(bidirectional=True)
    compiled = burnish.compile(model, fullgraph=True)
    with torch.no_grad():
        for length in (5, 7, 3, 11):
            x = torch.randn(length, 4, 6)
            torch.testing.assert_close(compiled(x), model(x))
