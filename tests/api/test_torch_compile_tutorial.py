"""The programs of PyTorch's torch.compile tutorial, rewritten: each gives eager's results through every backend."""

import contextlib
import io
import shutil
import traceback
from pathlib import Path

import pytest
import torch
from bench.models import MODELS

import burnish

from .recording_backend import Recording, operations

scipy_fft = pytest.importorskip("scipy.fft")
needs_cpp = pytest.mark.skipif(not shutil.which("g++"), reason="inductor on a CPU needs a C++ compiler")
backends = pytest.mark.parametrize(
    "backend",
    ["burnish", "eager", "aot_eager", pytest.param("inductor", marks=[needs_cpp, pytest.mark.slow]), Recording],
)


def agree(fn, compiled, *calls, exact=True):
    """Every call, made three times: the first is traced, the others run what was compiled."""
    for _ in range(3):
        for args in calls:
            want, got = fn(*args), compiled(*args)
            torch.testing.assert_close(got, want, rtol=None if not exact else 0, atol=None if not exact else 0)


def waves(x, y):
    return torch.sin(x) + torch.cos(y)


def squashed(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


BRANCH = squashed.__code__.co_firstlineno + 2


@backends
def test_function_is_compiled_by_a_call(backend):
    compiled = burnish.compile(waves, backend=chosen(backend))
    agree(waves, compiled, (torch.randn(3, 4), torch.randn(3, 4)), exact=backend == "eager")


def test_function_is_compiled_by_a_decorator():
    recording = Recording()

    @burnish.compile(backend=recording, fullgraph=True)
    def decorated(x, y):
        return torch.sin(x) + torch.cos(y)

    agree(waves, decorated, (torch.randn(3), torch.randn(3)), (torch.randn(3), torch.randn(3)))
    assert [operations(graph) for graph in recording.graphs] == [["sin", "cos", "add"]]
    assert recording.runs == 5, "six calls; the first is eager's own run"


def test_decorator_needs_no_parentheses():
    @burnish.compile
    def decorated(x):
        return x * 2

    assert decorated.__name__ == "decorated"
    agree(lambda x: x * 2, decorated, (torch.randn(3),))


class LinearRelu(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 6)

    def forward(self, x):
        return torch.nn.functional.relu(self.linear(x))


@backends
def test_module_is_compiled(backend):
    module = LinearRelu()
    compiled = burnish.compile(module, backend=chosen(backend))
    agree(module, compiled, (torch.randn(5, 10),), (torch.randn(5, 10),), exact=backend == "eager")


@backends
def test_gradients_reach_the_parameters(backend):
    module = LinearRelu()
    compiled = burnish.compile(module, backend=chosen(backend))
    for _ in range(3):
        x = torch.randn(5, 10)
        module.zero_grad()
        module(x).sum().backward()
        want = [weight.grad.clone() for weight in module.parameters()]
        module.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close([weight.grad for weight in module.parameters()], want)


@backends
def test_branch_on_data_takes_both_ways(backend):
    def absolute(x):
        y = x * 3
        if x.sum() < 0:
            return -y
        return y

    compiled = burnish.compile(absolute, backend=chosen(backend))
    agree(absolute, compiled, (torch.rand(4),), (-torch.rand(4),), exact=backend == "eager")


@backends
def test_number_among_the_arguments(backend):
    def add(x, y):
        return x + y

    compiled = burnish.compile(add, backend=chosen(backend))
    agree(add, compiled, (torch.randn(3), 1), (torch.randn(3), 2), (torch.randn(3), 2.0), (torch.randn(3), True))


@backends
def test_scipy_in_the_middle(backend):
    def spectrum(x):
        y = torch.sin(x) * 2
        z = torch.from_numpy(scipy_fft.dct(y.detach().numpy()))
        return torch.relu(z) + y

    compiled = burnish.compile(spectrum, backend=chosen(backend))
    agree(spectrum, compiled, (torch.randn(16),), (torch.randn(16),), exact=backend == "eager")


def test_custom_backend_sees_three_graphs_over_both_branches():
    graphs = []

    def printing(gm, example_inputs):
        print(gm.code)
        graphs.append(gm)
        return gm.forward

    compiled = burnish.compile(squashed, backend=printing)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        agree(squashed, compiled, (torch.randn(10), torch.rand(10)), (torch.randn(10), -torch.rand(10)))
    assert [operations(graph) for graph in graphs] == [["abs", "add", "truediv", "sum", "lt"], ["mul"], ["mul", "mul"]]
    assert printed.getvalue().count("def forward") == 3


def test_explain_reports_the_one_break_and_its_line():
    output = burnish.explain(squashed)(torch.randn(10), torch.rand(10))
    assert (output.graph_count, output.graph_break_count, output.op_count) == (2, 1, 6)
    (reason,) = output.break_reasons
    place = reason.user_stack[-1]
    assert (place.filename, place.lineno, place.line) == (__file__, BRANCH, "if b.sum() < 0:")
    assert f"{Path(__file__).name}:{BRANCH}" in str(output)


def test_fullgraph_raises_and_shows_the_users_line():
    compiled = burnish.compile(squashed, fullgraph=True, backend="eager")
    with pytest.raises(burnish.Unsupported) as caught:
        compiled(torch.randn(10), torch.rand(10))
    text = str(caught.value)
    assert f"{__file__}:{BRANCH} in squashed" in text
    assert "if b.sum() < 0:" in text
    assert "torch.where" in text, "what to do about it"
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "squashed" in frame.name]
    assert all(frame.filename == __file__ for frame in ours)


def test_fullgraph_does_not_raise_on_densenet():
    pytest.importorskip("torchvision")
    module, args, kwargs = MODELS["densenet121"]()
    compiled = burnish.compile(module, fullgraph=True, backend="eager")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(*args, **kwargs), module(*args, **kwargs), rtol=0, atol=0)


@backends
def test_training_a_small_model_goes_as_in_eager(backend):
    def trained(compile_):
        torch.manual_seed(1)
        module = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        run, losses = compile_(module), []
        for _ in range(5):
            loss = run(torch.randn(16, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, dict(module.state_dict())

    want = trained(lambda module: module)
    got = trained(lambda module: burnish.compile(module, backend=chosen(backend)))
    torch.testing.assert_close(got, want)


def chosen(backend):
    return backend() if backend is Recording else backend
