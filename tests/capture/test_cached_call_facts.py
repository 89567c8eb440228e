"""Facts cached about earlier calls: how arguments are bound, how a function is called, how torch shows it.

They must not be applied to other calls."""

import types

import pytest
import torch
from torch import nn

import burnish
from burnish.capture.interpreter import argument_binding
from burnish.capture.pytorch import recorder_fast_path

from .harness import Keywords, program

X = torch.randn(2, 3)


def positional(a, b, /, c=3, *, d=4):
    return a, b, c, d


def starred(a, b=2, *rest, c, d=5, **more):
    return a, b, rest, c, d, more


def named(a, b, c=3):
    return a, b, c


SHAPES = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"c": 7}),
    ((1,), {"b": 7}),
    ((1, 2), {"b": 7}),
    ((), {"b": 1, "a": 2}),
    ((1,), {"c": 7, "b": 6, "d": 5}),
    ((1, 2), {"d": 7, "e": 8, "c": 9}),
    ((1, 2, 3), {"c": 7, "f": 8}),
    ((1,), {"a": 7, "c": 2}),
    ((1, 2), {"e": 7}),
]


def outcome(call):
    try:
        return call()
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("function", [positional, starred, named])
def test_arguments_are_bound_as_python_binds_them_time_after_time(function):
    def bound(args, kwargs):
        values = argument_binding.bind(function, args, kwargs)
        names = function.__code__.co_varnames
        return tuple(values[names.index(name)] for name in names[: len(values)] if name in ORDER[function])

    for _ in range(2):
        for args, kwargs in SHAPES:
            want = outcome(lambda: in_order(function, function(*args, **kwargs)))  # noqa: B023
            got = outcome(lambda: bound(args, kwargs))  # noqa: B023
            assert want == got
            if isinstance(got, tuple) and "more" in ORDER[function]:
                assert list(want[-1]) == list(got[-1])  # in the same order


ORDER = {positional: ("a", "b", "c", "d"), named: ("a", "b", "c"), starred: ("a", "b", "c", "d", "rest", "more")}


def in_order(function, values):
    """Results of ``function``, in the order of its variables."""
    shown = ("a", "b", "rest", "c", "d", "more") if function is starred else ORDER[function]
    return tuple(dict(zip(shown, values, strict=True))[name] for name in ORDER[function])


def test_defaults_are_those_of_the_moment():
    def fn(a, b=2, *, c=3):
        return a, b, c

    assert argument_binding.bind(fn, (1,), {}) == [1, 2, 3]
    fn.__defaults__, fn.__kwdefaults__ = (7,), {"c": 8}
    assert argument_binding.bind(fn, (1,), {}) == [1, 7, 8]
    fn.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        argument_binding.bind(fn, (1,), {})


def test_remaining_keywords_are_a_new_dictionary_in_each_call():
    def fn(**more):
        return more

    first, second = (argument_binding.bind(fn, (), {"a": 1, "b": 2})[0] for _ in range(2))
    assert first == second == {"a": 1, "b": 2} and first is not second


@program(breaks=0)
def test_functions_of_one_code_and_of_several_namespaces():
    def scaled(x):
        return x * factor  # noqa: F821

    twice, thrice = (types.FunctionType(scaled.__code__, {"factor": n}, "scaled") for n in (2, 3))

    def fn(x):
        return twice(x), thrice(x), twice(x)

    return fn, [(X,), (X + 1,), (X,)]


@program(breaks=0)
def test_closures_of_one_code_each_read_their_own_cells():
    def scale(factor):
        def scaled(x, more=factor):
            return x * factor + more

        return scaled

    both = [scale(2), scale(3)]

    def fn(x):
        return [scaled(x) for scaled in (*both, scale(4))]

    return fn, [(X,), (X + 1,), (X,)]


def test_a_mark_on_one_of_two_functions_with_the_same_code_counts():
    def make():
        def shifted(x):
            return x + 1

        return shifted

    plain, marked = make(), make()
    marked._burnish_disable = True
    fn = burnish.compile(lambda x: plain(x) * plain(x) + marked(x), backend="eager", fullgraph=True)
    with pytest.raises(burnish.Unsupported, match="shifted"):
        fn(X)


def test_a_mark_that_is_set_on_the_way_counts():
    def shifted(x):
        return x + 1

    def fn(x):
        x = shifted(x)
        shifted._burnish_disable = True
        return shifted(x)

    with pytest.raises(burnish.Unsupported, match="shifted"):
        burnish.compile(fn, backend="eager", fullgraph=True)(X)


# ---- torch functions that have been seen before


def graphs_of(fn, *args):
    """Of two captures: in the second all that can be learned about its calls is known."""
    seen = []

    def keep(gm, example_inputs):
        seen.append([(node.op, node.name, str(node.args), str(node.kwargs)) for node in gm.graph.nodes])
        return gm.forward

    for _ in range(2):
        given, expected = [[arg.clone() for arg in args] for _ in range(2)]
        want, got = fn(*expected), burnish.compile(fn, backend=keep)(*given)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
        burnish.reset()
    return seen[: len(seen) // 2], seen[len(seen) // 2 :]


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    monkeypatch.setattr(recorder_fast_path, "_learned", {})


def test_a_failing_call_leaves_no_inputs_in_the_graph():
    def fn(x, w):
        y = nn.functional.layer_norm(x, (3,))
        try:
            return nn.functional.layer_norm(x, w, w)
        except TypeError:
            return y + 1

    first, second = graphs_of(fn, X, torch.ones(3))
    assert first == second and len(first) == 2  # the error ends the first graph
    assert [sum(op == "placeholder" for op, *_ in graph) for graph in first] == [1, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: nn.functional.relu(x, inplace=True),
        lambda x: nn.functional.dropout(x, 0.5, False),
        lambda x: x.contiguous(),
        lambda x: torch.dropout(x, 0.5, False),
    ],
)
def test_a_call_that_returns_its_argument(change):
    def fn(x, y):
        change(y * 1)  # known from here on
        z = change(x)
        return z * 2, x + change(z)

    first, second = graphs_of(fn, X, X + 1)
    assert first == second


def test_a_whole_number_in_a_tensor_is_still_seen_to_be_read():
    def fn(x, n):
        return x.narrow(0, 0, 1), x.narrow(0, torch.zeros((), dtype=torch.int64), 1), x.narrow(0, n, 1)

    compiled = burnish.compile(fn, backend="eager")
    for n in (0, 1, 0, 1):
        at = torch.tensor(n)
        torch.testing.assert_close(compiled(X, at), fn(X, at), rtol=0, atol=0)


@program
def test_a_call_by_name_and_by_position_and_with_a_default():
    def fn(x):
        first = nn.functional.softmax(x, -1) + nn.functional.softmax(x, dim=-1) + nn.functional.softmax(input=x, dim=0)
        return first, x.sum(-1), x.sum(dim=-1), x.sum(0, keepdim=True), x.sum(keepdim=True, dim=(0, 1))

    return fn, [(X,), (X + 1,), (X,)]


@program
def test_a_tensor_that_came_from_nowhere_is_given_to_a_known_function():
    held = {}

    def fn(x, scale=Keywords):
        y = torch.sin(x)
        held["y"] = y
        return torch.sin(held["y"]), torch.sin(torch.sin(x).detach())

    return fn, [(X,), (X + 1,), (X,)]
