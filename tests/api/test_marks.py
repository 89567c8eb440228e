"""Marks on functions: disable, allow_in_graph, substitute, constant results, graph_break and is_compiling."""

import copy
import functools
import math
import pickle

import pytest
import torch

import burnish
from burnish.capture.python import builtin_functions
from burnish.errors import UserError

from .recording_backend import Recording, operations

X = torch.arange(4.0)


def graphs_of(fn, *args, calls=3):
    """The graphs of a function, after as many calls, each with eager's result."""
    recording = Recording()
    compiled = burnish.compile(fn, backend=recording)
    for i in range(calls):
        moved = [a + i if isinstance(a, torch.Tensor) else a for a in args]
        torch.testing.assert_close(compiled(*moved), fn(*moved), rtol=0, atol=0)
    return [operations(graph) for graph in recording.graphs]


def broken_by(fn, *args):
    with pytest.raises(burnish.Unsupported) as caught:
        burnish.compile(fn, backend="eager", fullgraph=True)(*args)
    return caught.value.reason


def plus_one(x):
    return x + 1


# ---- disable


@pytest.mark.parametrize("disable", [burnish.disable, torch.compiler.disable], ids=["ours", "torch's"])
def test_disabled_function_is_left_out_of_the_graph(disable):
    hidden = disable(plus_one)
    assert graphs_of(lambda x: hidden(x * 2) * 3, X) == [["mul"], ["mul"]]


@pytest.mark.parametrize("disable", [burnish.disable, torch.compiler.disable], ids=["ours", "torch's"])
def test_reason_is_shown_in_the_break(disable):
    hidden = disable(plus_one, reason="it talks to the network")
    reason = broken_by(lambda x: hidden(x), X)
    assert reason.kind.name == "disabled-call"
    assert "it talks to the network" in reason.render()


def test_disable_is_a_decorator_with_and_without_arguments():
    @burnish.disable
    def bare(x):
        return x + 1

    @burnish.disable()
    def empty(x):
        return x + 1

    @burnish.disable(recursive=False, reason="why not")
    def full(x):
        return x + 1

    for hidden in (bare, empty, full):
        assert hidden.__name__ in ("bare", "empty", "full")
        assert graphs_of(lambda x, hidden=hidden: hidden(x * 2) * 3, X) == [["mul"], ["mul"]]


class Worker:
    factor = 3

    @burnish.disable
    def method(self, x):
        return x * self.factor

    @burnish.disable
    @staticmethod
    def static(x):
        return x * 5

    @burnish.disable
    @classmethod
    def of_class(cls, x):
        return x * cls.factor


def test_methods_of_all_kinds_are_disabled():
    worker = Worker()
    for hidden in (worker.method, worker.static, Worker.static, worker.of_class, Worker.of_class):
        assert graphs_of(lambda x, hidden=hidden: hidden(x * 2) * 3, X) == [["mul"], ["mul"]]


def test_class_is_disabled_in_its_constructor_and_call():
    @burnish.disable(reason="a class")
    class Hidden:
        def __init__(self, shift):
            self.shift = shift

        def __call__(self, x):
            return x + self.shift

    hidden = Hidden(2)
    assert graphs_of(lambda x: hidden(x * 2) * 3, X) == [["mul"], ["mul"]]
    assert "a class" in broken_by(lambda x: hidden(x), X).render()


def test_module_is_disabled_itself_and_so_are_its_copies():
    module = torch.nn.Linear(4, 4)
    assert burnish.disable(module) is module
    assert graphs_of(lambda x: module(x * 2) * 3, X) == [["mul"], ["mul"]]
    twin = copy.deepcopy(module)
    twin.weight.data.zero_()
    twin.bias.data.zero_()
    assert torch.equal(twin(X), torch.zeros(4)), "the copy computes with its own weights"
    assert not torch.equal(module(X), torch.zeros(4))
    assert torch.equal(pickle.loads(pickle.dumps(module))(X), module(X))


def test_class_of_modules_is_disabled():
    @burnish.disable
    class Hidden(torch.nn.Module):
        def forward(self, x):
            return x + 1

    hidden = Hidden()
    assert graphs_of(lambda x: hidden(x * 2) * 3, X) == [["mul"], ["mul"]]


def test_compiling_a_disabled_function_returns_it():
    hidden = burnish.disable(plus_one)
    assert burnish.compile(hidden, fullgraph=True) is hidden
    foreign = torch.compiler.disable(plus_one)
    assert burnish.compile(foreign) is foreign
    assert torch.equal(foreign(X), X + 1)


def test_disabled_function_does_not_break_in_plain_python():
    assert torch.equal(burnish.disable(plus_one)(X), X + 1)


def test_functions_that_a_disabled_function_compiles_are_compiled():
    recording = Recording()
    inner = burnish.compile(plus_one, backend=recording)

    @burnish.disable
    def hidden(x):
        return inner(x)

    compiled = burnish.compile(lambda x: hidden(x) * 2, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X), (X + 1) * 2)
    assert (len(recording.graphs), recording.runs) == (1, 2)


def test_disabling_a_compiled_function_runs_its_original():
    recording = Recording()
    hidden = burnish.disable(burnish.compile(plus_one, backend=recording))
    assert torch.equal(hidden(X), X + 1)
    assert not recording.graphs


# ---- graph_break, allow_in_graph, assume_constant_result


def test_graph_break_breaks_with_its_message_and_does_nothing_in_plain_python():
    def fn(x):
        x = x + 1
        burnish.graph_break("to look at it")
        return x * 2

    assert graphs_of(fn, X) == [["add"], ["mul"]]
    assert "to look at it" in broken_by(fn, X).render()


def test_allowed_function_is_one_node_and_its_inside_is_not_traced():
    @burnish.allow_in_graph
    def opaque(x):
        return torch.sin(x) + torch.cos(x)

    assert graphs_of(lambda x: opaque(x * 2) * 3, X) == [["mul", "opaque", "mul"]]


def test_allow_in_graph_takes_several_at_once():
    def one(x):
        return x + 1

    def two(x):
        return x + 2

    assert burnish.allow_in_graph([one, two]) == [one, two]
    assert graphs_of(lambda x: one(two(x)), X) == [["two", "one"]]


def test_constant_result_is_computed_once():
    asked = []

    @burnish.assume_constant_result
    def setting():
        asked.append(1)
        return 2.0 + len(asked)

    compiled = burnish.compile(lambda x: x * setting(), backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3.0)
    assert len(asked) == 1


# ---- substitute_in_graph


@pytest.fixture
def cube_root():
    """A C function whose substitute does not outlive the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(builtin_functions.BUILTINS, math.cbrt)
        yield math.cbrt


def test_substitute_is_interpreted_in_the_place_of_a_c_function(cube_root):
    @burnish.substitute_in_graph(cube_root)
    def with_tensors(x, /):
        return torch.sign(x) * torch.abs(x).pow(1 / 3)

    recording = Recording()
    compiled = burnish.compile(lambda x: cube_root(x) + 1, backend=recording, fullgraph=True)
    for x in (X, -X, X * 8):
        torch.testing.assert_close(compiled(x), with_tensors(x) + 1)
    assert [operations(graph) for graph in recording.graphs] == [["sign", "abs", "pow", "mul", "add"]]


def test_substitute_must_take_the_same_parameters():
    with pytest.raises(UserError, match=r"wrong\(x\) does not take what .*skip_signature_check=True"):

        @burnish.substitute_in_graph(pow)
        def wrong(x):
            return x


@pytest.mark.parametrize(
    "original, polyfill, said",
    [
        (3, plus_one, "takes the function to stand in for, not 3"),
        (int, plus_one, "takes the function to stand in for"),
        (pow, functools.partial(plus_one), "decorates a Python function"),
    ],
)
def test_wrong_substitutes_are_user_errors(original, polyfill, said):
    with pytest.raises(UserError, match=said):
        burnish.substitute_in_graph(original)(polyfill)


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda: burnish.disable(3), "burnish.disable takes a function, a class or a module, not 3"),
        (lambda: burnish.allow_in_graph(len), r"cannot be marked. Wrap it in one: def wrapped.*len\(\*args\)"),
        (lambda: burnish.allow_in_graph(3), "burnish.allow_in_graph takes a function, not 3"),
        (lambda: burnish.assume_constant_result(len), "burnish.assume_constant_result: .*cannot be marked"),
    ],
)
def test_unmarkable_objects_raise_a_user_error(use, said):
    with pytest.raises(UserError, match=said):
        use()


# ---- is_compiling


def test_is_compiling_is_true_in_compiled_code_and_false_elsewhere():
    def flags(x):
        return x, burnish.is_compiling(), torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling()

    compiled = burnish.compile(flags, backend="eager", fullgraph=True)
    assert flags(X)[1:] == (False, False, False)
    for _ in range(3):
        assert compiled(X)[1:] == (True, True, True)
    assert flags(X)[1:] == (False, False, False)


def test_is_compiling_is_false_in_a_disabled_function():
    @burnish.disable
    def hidden():
        return burnish.is_compiling(), torch.compiler.is_compiling()

    compiled = burnish.compile(lambda x: (x + 1, hidden()), backend="eager")
    for _ in range(3):
        assert compiled(X)[1] == (False, False)


def test_is_compiling_chooses_the_code_that_is_compiled():
    def fn(x):
        if not torch.compiler.is_compiling():
            print("only in plain Python")
        return x * 2

    assert graphs_of(fn, X) == [["mul"]]
