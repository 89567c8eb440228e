"""Graphs that change torch's switches: compiled, and the switches afterwards are eager's."""

import pytest
import torch
from torch import nn

import burnish
from burnish import events
from burnish.compiler.adapters.adapter_order import ADAPTERS
from burnish.settings import patch

from .compare_sizes import same, watching
from .compare_training import alike


def switches():
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return (
        torch.is_grad_enabled(),
        nesting,
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
    )


@pytest.fixture(autouse=True)
def unchanged():
    before = switches()
    yield
    torch.set_grad_enabled(True)
    assert switches() == before


def rows(i):
    return (torch.randn(6, 8),)


def test_a_break_inside_autocast_keeps_the_code_before_it_compiled():
    def build(compiler):
        model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        means = []

        def train(x):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = model(x)
                means.append(sum(y.detach().float().flatten().tolist()))
                loss = y.float().square().mean() + model(x * 2).float().mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), switches()

        return compiler(train), (model,)

    seen = alike(build, rows, steps=4, tolerance=2e-2)
    assert seen.breaks and (seen.refused, seen.given_up) == ([], [])


def test_a_break_inside_of_no_grad_does():
    def build(compiler):
        model = nn.Linear(8, 2)

        def run(x):
            y = model(x).sin()
            with torch.no_grad():
                scale = (y * 2).exp()
                burnish.graph_break()
                scale = scale.sum()
            return y * scale, scale.requires_grad, switches()

        call = compiler(run)

        def train(x):
            model.zero_grad()
            y, *rest = call(x)
            y.sum().backward()
            return y.detach(), rest

        return train, (model,)

    seen = alike(build, rows, steps=4)
    assert seen.breaks and (seen.refused, seen.given_up) == ([], [])


@pytest.mark.parametrize("never_slower", [False, True], ids=["compiled", "contest"])
def test_gradients_stay_off_where_the_program_leaves_them_off(never_slower):
    def run(x):
        y = x.sin() * 2
        torch.set_grad_enabled(False)
        return y, y * 3

    with patch(never_slower=never_slower, on_error="raise"):
        compiled = burnish.compile(run, fullgraph=True)
        for _ in range(12):
            x = torch.randn(4, requires_grad=True)
            y, z = compiled(x)
            assert not torch.is_grad_enabled() and not z.requires_grad
            torch.set_grad_enabled(True)
            y.sum().backward()
            torch.testing.assert_close((x.grad, z), (2 * x.detach().cos(), 6 * x.detach().sin()))


def test_gradients_that_the_program_turns_on_flow():
    weight = torch.randn(3, 3, requires_grad=True)

    def run(x):
        with torch.enable_grad():
            y = (x @ weight).sin()
        return y, y * 2

    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(run, fullgraph=True)
        for _ in range(3):
            x = torch.randn(2, 3)
            with torch.no_grad():
                y, doubled = compiled(x)
                expected, _ = run(x)
            assert y.requires_grad and not doubled.requires_grad
            want = torch.autograd.grad(expected.sum(), weight)
            torch.testing.assert_close(torch.autograd.grad(y.sum(), weight), want)


def test_an_error_under_other_switches_leaves_them_as_eager_does():
    def run(x, index):
        with torch.no_grad():
            y = x.sin()[index]
            burnish.graph_break()
            return y * 2

    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(run)
        for _ in range(3):
            compiled(torch.ones(4, requires_grad=True), torch.tensor([1]))
        with pytest.raises(IndexError):
            compiled(torch.ones(4, requires_grad=True), torch.tensor([9]))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "mode",
    [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["inference", "no_grad", "autocast"],
)
def test_calls_repeated_for_other_sizes_switch_nothing(mode):
    weight = torch.randn(7, 7)

    def run(x):
        with mode():
            y = x @ x.T
            y = y @ weight if y.shape[0] == 7 else y + y.sum(0)
        return y + 1

    with patch(never_slower=False, on_error="raise"):
        compiled = burnish.compile(run)
        for n in (5, 5, 7, 9, 11):
            x, before = torch.randn(n, 6), switches()
            torch.testing.assert_close(compiled(x), run(x), rtol=1e-2, atol=1e-2)
            assert switches() == before and not torch.is_inference_mode_enabled()


@pytest.mark.falls_back("refused")
def test_a_trace_that_ends_early_leaves_the_dispatcher_as_it_was():
    def run(x):
        with torch.inference_mode():
            shift = torch.tensor([2, 3]).sum()
        return x.sum() - shift

    with patch(never_slower=False):
        compiled, x = burnish.compile(run), torch.randn(3)
        before = torch._C._dispatch_tls_local_include_set().raw_repr()
        for _ in range(3):
            assert torch.equal(compiled(x), run(x))
            assert torch._C._dispatch_tls_local_include_set().raw_repr() == before
    assert torch.tensor([2, 3]).sum() == 5


def test_adapters_around_a_graph_are_shown_in_their_order():
    seen = []
    stop = events.subscribe(seen.append, ["runtime.adapters"])

    def fn(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y

    try:
        with torch.autocast("cpu"), burnish.settings.patch(check=False, never_slower=True):
            compiled = burnish.compile(fn)
            for _ in range(3):
                torch.set_grad_enabled(True)
                compiled(torch.ones(3, requires_grad=True))
    finally:
        stop()
        torch.set_grad_enabled(True)
    names = [adapter.name for adapter in ADAPTERS]
    assert [event.data["adapters"] for event in seen] == [["autocast_off", "exit_state", "contest"]]
    assert sorted(seen[0].data["adapters"], key=names.index) == seen[0].data["adapters"]
    assert seen[0].data["text"] == "a graph of 4 nodes: autocast_off, exit_state, contest"
    assert all(adapter.why and adapter.why_here for adapter in ADAPTERS)


def test_a_graph_for_all_sizes_leaves_the_gradient_mode_of_a_block():
    weight = torch.randn(6, 6, requires_grad=True)

    def sample(x, steps):
        seen = []
        with torch.no_grad():
            for _ in range(steps):
                y = x @ weight
                if y.sum() > 1e9:
                    break
                x = torch.cat([x, y[:1] / 10])
                seen.append((x.requires_grad, torch.is_grad_enabled()))
        return x @ weight, seen, torch.is_grad_enabled()

    burnish.reset()
    with watching() as sizes, burnish.settings.patch(never_slower=False):
        compiled = burnish.compile(sample, dynamic=True)
        for rows, steps in ((4, 3), (5, 3), (6, 4), (40, 2), (7, 9)):
            x, before = torch.randn(rows, 6), switches()
            same(compiled(x, steps), sample(x, steps))
            assert switches() == before
    assert sizes.is_open and not sizes.why_apiece, sizes.words
