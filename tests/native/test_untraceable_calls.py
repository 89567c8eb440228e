"""Calls of torch that cannot be traced run as they are, and the parts of the graph around them are compiled."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burnish
from burnish.lower.trace.traceability import may_run_alone
from burnish.settings import patch

from ..recorded_events import recorded
from .compare_training import alike


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 5)

    def forward(self, x, words):
        scores = self.head(x.sin()).log_softmax(-1)
        return torch.nn.functional.ctc_loss(scores, words, (8, 7), (3, 2), zero_infinity=True) * 2


class Filtered(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 9))
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x):
        spectrum = torch.stft(x, 16, 4, window=self.window, return_complex=True) * self.gain[:, None]
        return torch.istft(spectrum, 16, 4, window=self.window).tanh()


class Fitted(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x, y):
        self.calls.add_(1)
        tail = self.calls[1:]
        weights = torch.linalg.lstsq(self.head(x).tanh(), y).solution
        tail.mul_(2)
        with torch.no_grad():
            rank = torch.linalg.lstsq(x, y).rank + self.calls.sum()
        return weights.cos() * rank, tail * 1


PROGRAMS = {
    "a CTC loss": (Speech, lambda i: (torch.randn(8, 2, 4), torch.randint(1, 5, (2, 3))), "_ctc_loss"),
    "an inverse STFT": (Filtered, lambda i: (torch.randn(2, 64 + 16 * (i // 3)),), "equal"),
    "least squares, between writes": (Fitted, lambda i: (torch.randn(5, 3), torch.randn(5, 2)), "linalg_lstsq"),
}


def training(kind):
    def build(compiler):
        model = kind()
        run = compiler(model)

        def step(*args):
            model.zero_grad()
            made = run(*args)
            (made[0] if isinstance(made, tuple) else made).square().sum().backward()
            return made

        return step, (model,)

    return build


@pytest.mark.falls_back("sizes", only="an inverse STFT")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_surrounds_a_call_that_cannot_be_traced_is_compiled(name):
    kind, data, why = PROGRAMS[name]
    seen = alike(training(kind), data, steps=6, never_slower=False)
    assert (seen.breaks, seen.refused) == ([], [])
    assert seen.planned >= 2 and why in seen.native[0]


def test_a_graph_that_was_refused_before_runs_the_same_call_alone():
    """The refusal on disk knows the call."""
    model, x = Filtered(), torch.randn(2, 64)
    for _ in range(2):
        burnish.reset()
        with recorded("lower.native", "lower.refused") as seen, patch(never_slower=False), torch.no_grad():
            compiled = burnish.compile(model)
            for _ in range(3):
                torch.testing.assert_close(compiled(x), model(x))
        assert [event.kind for event in seen] == ["lower.native"]


@pytest.mark.falls_back("refused")
def test_a_graph_of_nothing_else_runs_eagerly_as_a_whole():
    run = burnish.compile(lambda a, b: torch.linalg.lstsq(a, b).solution)
    with recorded("lower.refused", "lower.native") as seen:
        for seed in range(3):
            a, b = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(run(a, b), torch.linalg.lstsq(a, b).solution)
    assert [event.kind for event in seen] == ["lower.refused"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_an_error_after_a_call_that_runs_alone_leaves_eagers_tensors(dynamic):
    def fn(x, y, noted):
        noted.add_(1)
        found = torch.linalg.lstsq(x, y).solution
        noted.mul_(2)
        return torch.linalg.cholesky(found @ found.mT - 1).sum()

    worlds = []
    for run in (fn, burnish.compile(fn, dynamic=dynamic)):
        noted, errors = torch.zeros(3), []
        for seed in range(4):
            values = torch.randn(
                2, 4, 2 if dynamic is None else 2 + seed // 2, generator=torch.Generator().manual_seed(seed)
            )
            with pytest.raises(torch.linalg.LinAlgError) as caught:
                run(*values, noted)
            errors.append((str(caught.value), noted.tolist()))
        worlds.append(errors)
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("kept", [True, False], ids=["first with residuals", "first without"])
def test_a_shape_that_depends_on_data_is_another_one_later(kept):
    """Residuals are empty where columns depend on each other."""

    def fn(x, y):
        residuals = torch.linalg.lstsq(x * 2, y, driver="gelsd").residuals
        return residuals.sin() + 1, (residuals * 2).sum() + x.sum()

    full = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    dependent = full[:, :1].repeat(1, 2)
    assert fn(full, full)[0].shape != fn(dependent, full)[0].shape
    with patch(never_slower=False):
        compiled = burnish.compile(fn)
        for x in [full if kept else dependent] * 3 + [dependent, full, dependent]:
            torch.testing.assert_close(compiled(x, full + 1), fn(x, full + 1))


def solved(y):
    return torch.linalg.lstsq(y.view(2, 3).T.contiguous(), torch.ones(3, 1)).solution.sum()


def many(x):
    y = x.sin()
    for _ in range(5):
        y = (y + solved(y)).sin()
    return y


def to_mkldnn(x):
    y = x.sin() + 1
    return (y.to_mkldnn() * 2).to_dense() + y.cos() * 2


WEIGHT = nn.Parameter(torch.linspace(0.1, 1, 6))


def data(x):
    made = solved(x)
    WEIGHT.data.mul_(0.5)
    return WEIGHT * x * made


@pytest.mark.falls_back("refused")
@pytest.mark.parametrize("fn", [many, to_mkldnn, data])
def test_graphs_that_are_not_divided_run_eagerly_as_a_whole(fn):
    """Many such calls cost a trace each, and most of some graphs cannot be compiled anyway."""
    with recorded("lower.refused", "lower.native") as seen, patch(never_slower=False), torch.no_grad():
        run = burnish.compile(fn)
        for k in range(4):
            x, before = torch.linspace(0.1, 1, 6) + k, WEIGHT.data.clone()
            made = run(x)
            WEIGHT.data = before
            torch.testing.assert_close(made, fn(x))
    assert [event.kind for event in seen] == ["lower.refused"]


def test_calls_that_may_write_to_an_argument_do_not_run_alone():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for function, args in (
        (F.embedding, (x, x, None, 1.0)),
        (F.batch_norm, (x, x, x)),
        (torch.batch_norm, (x, x, x, x, x, True, 0.1, 1e-5, False)),
        (F.celu, (x, 1.0, True)),
    ):
        assert not may_run_alone(graph.call_function(function, args))
    assert may_run_alone(graph.call_function(F.ctc_loss, (x, x, x, x)))
