"""Functions of TorchScript in captured functions: nodes that a compiler traces, and breaks where data decides."""

import warnings

import pytest
import torch

import burnish
from burnish.capture.pytorch.scripted_functions import ScriptedCall
from burnish.compiler.graph_cache_key import key_of

from .caller_programs import program_with_caller

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated, and in use

    @torch.jit.script
    def clamped(x: torch.Tensor, limit: float):
        return (x / limit).tanh() * limit

    @torch.jit.script
    def repeated(x: torch.Tensor, times: int, factor: torch.Tensor):
        if times < 0:
            raise ValueError("times is negative")
        for _ in range(times):
            x = x * factor
        rows = x.view(x.size(0), -1)
        return rows, rows.sum(dim=1, keepdim=True)

    @torch.jit.script
    def first_of(parts: list[torch.Tensor]):
        return torch.cat(parts).sin(), parts[0].select(0, 0)

    @torch.jit.script
    def strided(x: torch.Tensor, n: torch.Tensor):
        return x * int(n[0]) + n.stride(0)

    @torch.jit.script
    def gated(x, y, channels):
        count = channels[0]
        both = x + y
        return torch.tanh(both[:, :count]) * torch.sigmoid(both[:, count:])

    @torch.jit.script
    def gated_in_place(x, channels):
        channels.add_(1)
        return x[:, : channels[0]]

    @torch.jit.script
    def by_sign(x: torch.Tensor):
        if x.sum() > 0:
            return x + 1
        return x - 1

    @torch.jit.script
    def increased(x: torch.Tensor):
        x.add_(1)
        return x * 2

    @torch.jit.script
    def dropped(x: torch.Tensor):
        return torch.dropout(x, 0.5, True)


def going_back(fn, x):
    out = fn(x)
    sum(part.square().sum() for part in (out if isinstance(out, tuple) else (out,))).backward()
    return out, x.grad


def leaf(i):
    return (torch.linspace(-1, 1, 6 + 2 * i).view(-1, 2).requires_grad_(),)


def in_one_graph(make):
    """By capture alone and by our compiler. TorchScript has its own formulas of gradients, which round differently."""

    def test():
        program_with_caller(make, breaks=0, exact=False)()
        fn, caller, calls = make()
        compiled = burnish.compile(fn, fullgraph=True)
        for i in range(3):
            torch.testing.assert_close(caller(compiled, *calls(i)), caller(fn, *calls(i)))

    test.__name__, test.__doc__ = make.__name__, make.__doc__
    return test


@in_one_graph
def test_a_scripted_function_is_part_of_the_graph():
    return lambda x: clamped(x * 2, 2.0) + 1, going_back, leaf


@in_one_graph
def test_a_scripted_function_converts_numbers_as_it_declares():
    return lambda x: x + clamped(torch.arange(2), 3), going_back, leaf


@in_one_graph
def test_loops_and_branches_on_numbers_are_part_of_the_graph():
    return lambda x: repeated(x=x, times=2, factor=x.cos())[1], going_back, leaf


@in_one_graph
def test_a_scripted_function_takes_a_list_of_tensors():
    return lambda x: first_of([x.exp(), x]), going_back, leaf


@in_one_graph
def test_a_scripted_function_reads_a_known_tensor():
    """As WaveGlow and VITS do."""

    def fn(x):
        channels = torch.IntTensor([x.shape[1] // 2])
        return gated(x * 2, gated(x, x, channels).repeat(1, 2), channels)

    return fn, going_back, lambda i: (torch.linspace(-1, 1, 24 + 24 * i).view(-1, 4).requires_grad_(),)


def test_a_scripted_function_asks_how_a_known_tensor_lies_in_memory():
    def fn(x):
        return strided(x, torch.tensor([3]).expand(3)), strided(x, torch.arange(6)[::2])

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), fn(x))


def test_a_scripted_function_reads_a_tensor_that_changes():
    def fn(x, channels):
        return gated(x, x, channels)

    compiled = burnish.compile(fn)
    for count in (1, 1, 1, 2, 1):
        x, channels = torch.randn(3, 2 if count == 1 else 4), torch.IntTensor([count])
        torch.testing.assert_close(compiled(x, channels), fn(x, channels))


def test_a_scripted_function_writes_to_a_known_tensor():
    def fn(x):
        channels = torch.IntTensor([1])
        return gated_in_place(x, channels) * 2, gated_in_place(x, channels), channels

    assert {each.source.kind.code for each in burnish.explain(fn)(torch.ones(2, 4)).break_reasons} == {"B205"}
    compiled = burnish.compile(fn)
    for _ in range(3):
        x = torch.randn(2, 4)
        assert all(map(torch.equal, compiled(x), fn(x)))


def test_the_error_of_a_scripted_function_that_reads_a_known_tensor():
    def fn(x, y):
        try:
            return gated(x, y, torch.IntTensor([2]))
        except RuntimeError as error:
            return str(error)

    compiled = burnish.compile(fn)
    for columns in (4, 3, 4, 3):
        x, y = torch.ones(2, 4), torch.ones(2, columns)
        got, expected = compiled(x, y), fn(x, y)
        assert got == expected if columns == 3 else torch.equal(got, expected)


def test_an_error_of_a_scripted_function_is_the_programs():
    def fn(x, times):
        try:
            return repeated(x * 2, times, x)[0]
        except torch.jit.Error as error:
            return str(error).splitlines()[-1]

    compiled = burnish.compile(fn)
    for times in (2, -1, 2, -1):
        got, expected = compiled(torch.ones(2, 2), times), fn(torch.ones(2, 2), times)
        assert got == expected if times < 0 else torch.equal(got, expected)


@pytest.mark.parametrize("scripted", [by_sign, increased, dropped])
def test_a_scripted_function_with_an_effect_or_of_data_is_a_break(scripted):
    def fn(x):
        return scripted(x * 2) + 1

    assert {each.source.kind.code for each in burnish.explain(fn)(torch.ones(2)).break_reasons} == {"B205"}
    compiled = burnish.compile(fn, options={"eager_random": True})
    for value in (1.0, -1.0, 2.0, -2.0):
        torch.manual_seed(0)
        expected = fn(torch.full((3,), value))
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(torch.full((3,), value)), expected)


def test_another_scripted_function_is_noticed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = torch.jit.script(torch.nn.functional.relu6)

    class Net(torch.nn.Module):
        act = staticmethod(by_sign)

        def forward(self, x):
            return self.act(x * 2)

    net = Net()
    net.act = clamp = lambda x: clamped(x, 2.0)
    compiled = burnish.compile(net)
    for act in (clamp, other, clamp, by_sign):
        net.act = act
        torch.testing.assert_close(compiled(torch.ones(3)), net(torch.ones(3)))


def test_the_same_program_of_torchscript_has_the_same_key():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same, other = (torch.jit.script(each) for each in (clamped._torchdynamo_inline, torch.nn.functional.relu6))
    keys = [key_of(graph_of(each), [torch.ones(3)], False, ()) for each in (clamped, same, other)]
    assert keys[0] is not None and keys[0] == keys[1] != keys[2]


def graph_of(scripted):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(ScriptedCall(scripted, "scripted"), (x, 2.0))
    graph.output((made,))
    return torch.fx.GraphModule({}, graph)
