"""Native iterators that existed before a segment: the rest of a loop behind a graph break is one graph."""

import collections
import itertools
import operator

import pytest
import torch
from torch import nn

import burnish

from .harness import program

X = torch.ones(2)


def ones():
    return [(torch.full((4,), float(k)),) for k in range(3)]


def count_runs(fn, *calls):
    """The graphs that a backend receives in all calls, and the graphs and operators that run in the last one."""
    made, runs, operators = [], 0, 0

    def backend(gm, example_inputs):
        made.append(gm)
        here = sum(node.op == "call_function" or node.op == "call_method" for node in gm.graph.nodes)

        def run(*inputs):
            nonlocal runs, operators
            runs, operators = runs + 1, operators + here
            return gm.forward(*inputs)

        return run

    compiled = burnish.compile(fn, backend=backend)
    for args in calls:
        runs = operators = 0
        compiled(*args)
    return len(made), runs, operators


def breaks_at_first(number):
    if number == 0:
        burnish.graph_break()


def over_list(x):
    for at in [0, 1, 2, 3]:
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_tuple(x):
    for at in (0, 1, 2, 3):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_range(x):
    for at in range(4):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_reversed(x):
    for at in reversed([3, 2, 1, 0]):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_enumerate(x):
    for at, scale in enumerate([1.0, 2.0, 3.0, 4.0]):
        x = x.sin() + scale
        breaks_at_first(at)
    return x


def over_zip(x):
    for at, scale in zip(range(4), (1.0, 2.0, 3.0, 4.0)):  # noqa: B905
        x = x.sin() + scale
        breaks_at_first(at)
    return x


def over_items(x):
    for at, scale in {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}.items():
        x = x.sin() + scale
        breaks_at_first(at)
    return x


def over_ordered_items(x):
    for at, scale in collections.OrderedDict({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}).items():
        x = x.sin() + scale
        breaks_at_first(at)
    return x


def over_ordered_values_backwards(x):
    for at in reversed(collections.OrderedDict(a=3, b=2, c=1, d=0).values()):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_values(x):
    for at in {"a": 0, "b": 1, "c": 2, "d": 3}.values():
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_set(x):
    for at in {0, 1, 2, 3}:
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_text(x):
    for at, letter in enumerate("abcd"):
        x = x.sin() + ord(letter)
        breaks_at_first(at)
    return x


def over_map(x):
    for at in map(lambda value: value - 1, [1, 2, 3, 4]):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_chain(x):
    for at in itertools.chain([0, 1], (2, 3)):
        x = x.sin() + at
        breaks_at_first(at)
    return x


def over_count(x):
    for at in itertools.count():
        x = x.sin() + at
        breaks_at_first(at)
        if at == 3:
            break
    return x


LOOPS = (
    over_list,
    over_tuple,
    over_range,
    over_reversed,
    over_enumerate,
    over_zip,
    over_items,
    over_ordered_items,
    over_ordered_values_backwards,
    over_values,
    over_set,
)


@pytest.mark.parametrize("loop", (*LOOPS, over_text, over_map, over_chain, over_count), ids=lambda loop: loop.__name__)
def test_the_loop_behind_a_break_is_one_graph(loop):
    calls = ones()
    graphs, runs, operators = count_runs(loop, *calls)
    assert (runs, operators) == (2, 8) and graphs == 2
    compiled = burnish.compile(loop, backend="eager")
    for args in calls:
        assert torch.equal(compiled(*args), loop(*args))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        burnish.graph_break()
        return torch.tanh(x)


@pytest.mark.parametrize("kind", (list, nn.ModuleList, lambda layers: dict(enumerate(layers))))
def test_a_break_in_each_round_makes_one_graph_for_all_rounds(kind):
    layers = kind([Layer() for _ in range(6)])

    def fn(x):
        for layer in layers.values() if isinstance(layers, dict) else layers:
            x = layer(x)
        return x

    graphs, runs, operators = count_runs(fn, *ones())
    assert (graphs, runs, operators) == (3, 7, 12)


def test_parameters_behind_a_break_are_one_graph():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def fn(x):
        for at, parameter in enumerate(model.parameters()):
            x = x + parameter.sum()
            breaks_at_first(at)
        return x

    with torch.no_grad():
        assert count_runs(fn, *ones()) == (2, 2, 8)


def test_rounds_that_differ_are_not_traced_together_for_ever():
    """From some number of segments on, each round is a segment of its own."""

    def fn(x):
        for at in range(60):
            x = x + 1
            if at in (0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55):
                burnish.graph_break()
        return x

    compiled = burnish.compile(fn, backend="eager")
    for args in ones():
        assert torch.equal(compiled(*args), fn(*args))
    points = compiled.__burnish_program__.continuations.values()
    assert not any(point.given_up for point in points) and max(len(point.segments) for point in points) < 8


def test_a_long_loop_is_not_unrolled():
    def fn(x):
        for at in range(1000):
            x = x + 1
            breaks_at_first(at)
        return x

    graphs, runs, operators = count_runs(fn, *ones())
    assert operators == 1000 and graphs < 5 and runs > 500


@program
def test_iterator_as_an_argument():
    def fn(numbers, x):
        return x * next(numbers) + sum(numbers)

    return fn, lambda i: (iter([1.5, 2.0, i]), torch.ones(3))


@program
def test_iterator_in_an_object_is_advanced_once_per_call():
    class Scales:
        def __init__(self):
            self.values = iter([1.0, 2.0, 3.0, 4.0, 5.0])

    scales = Scales()
    return lambda x: x * next(scales.values), [(torch.ones(2),)] * 4, scales, lambda: list(scales.values)


@program
def test_iterator_that_is_exhausted():
    def fn(numbers, x):
        try:
            return x * next(numbers)
        except StopIteration:
            return x

    return fn, lambda i: (iter([2.0] * (i % 2)), torch.ones(2))


@program
def test_two_iterators_that_may_be_one():
    def fn(first, second, x):
        return x + next(first) * 10 + next(second), list(first), list(second)

    def calls(i):
        first = iter([1, 2, 3])
        return first, first if i == 1 else iter([4, 5, 6]), torch.ones(2)

    return fn, calls


@program
def test_list_that_may_be_iterated_is_written():
    def fn(numbers, items, x):
        x = x + next(numbers)
        items[1] = 50
        return x + next(numbers), items

    def calls(i):
        items = [1, 2, 3]
        return iter(items), items if i == 1 else [1, 2, 3], torch.ones(2)

    return fn, calls


@program
def test_exhausted_iterator_does_not_see_an_append():
    def fn(numbers, items, x):
        total = sum(numbers)
        items.append(7)
        return x + total, next(numbers, "none"), items

    def calls(i):
        items = [1, 2, 3]
        return iter(items), items if i != 1 else [1], torch.ones(2)

    return fn, calls


@program
def test_dictionary_of_another_size_is_an_error():
    def fn(keys, table, x):
        x = x.sin()
        table["new"] = 1
        for key in keys:
            x = x + len(key)
        return x

    def calls(i):
        table = {"a": 1, "b": 2}
        return iter(table), table if i != 1 else {}, torch.ones(2)

    return fn, calls


@program
def test_zip_loses_what_it_took_before_the_end():
    def fn(x):
        first, second = iter([1, 2, 3, 4]), iter([5, 6])
        for a, b in zip(first, second):  # noqa: B905
            x = x + a * b
            breaks_at_first(a - 1)
        return x, list(first)

    return fn, ones()


@program
def test_zip_and_its_own_iterator_in_turn():
    def fn(x):
        numbers = iter(range(10))
        burnish.graph_break()
        pairs = zip(numbers, numbers)  # noqa: B905
        first = next(pairs)
        burnish.graph_break()
        second, third = next(numbers), next(pairs)
        return x + first[0] + second * third[1], list(numbers)

    return fn, ones()


@program
def test_strict_zip_of_uneven_lists():
    def fn(x):
        for a, b in zip([1, 2], [1, 2, 3], strict=True):
            x = x + a * b
            breaks_at_first(a - 1)
        return x

    return fn, ones()


@program
def test_elements_of_many_kinds():
    def fn(x):
        for value in [0, None, True, 1.5, "text", (1, 2), [3], {"a": 1}, 2j, torch.float32, len]:
            if value == 0:
                burnish.graph_break()
            x = x + (1 if value else 2)
        return x

    return fn, ones()


@program
def test_iterator_left_in_the_middle_is_returned():
    def fn(x):
        numbers = iter([1, 2, 3, 4])
        next(numbers)
        burnish.graph_break()
        x = x * next(numbers)
        return x, [numbers, numbers]

    def outer(x):
        x, (first, second) = fn(x)
        return x, first is second, list(first), list(second)

    return outer, ones()


class Key:
    def __init__(self, text):
        self.text = text

    def __hash__(self):
        return hash(self.text)

    def __eq__(self, other):
        return self.text == other.text


@pytest.mark.parametrize("view", ("keys", "values", "items"))
def test_a_change_of_an_ordered_dictionary_is_an_error_behind_a_break(view):
    def fn(x, table, breaks):
        steps = iter(getattr(table, view)())
        next(steps)
        if breaks:
            x.tolist()
        table["new"] = 1
        try:
            return x, next(steps)
        except RuntimeError as error:
            return x, str(error)

    compiled = burnish.compile(fn, backend="eager")
    for breaks in (True, False):
        for k in range(3):
            tables = [collections.OrderedDict(a=k, b=2) for _ in range(2)]
            expected, got = fn(X, tables[0], breaks), compiled(X, tables[1], breaks)
            assert str(got) == str(expected) and tables[0] == tables[1]


def test_keys_of_the_user_s_in_an_ordered_dictionary():
    table = collections.OrderedDict({Key("a"): (1, 2), Key("b"): (3, 4)})

    def fn(x):
        found = []
        for view in (table.keys(), table.values(), table.items()):
            for part in view:
                x = x + 1
                burnish.graph_break()
                found.append(part)
        return x, found

    compiled = burnish.compile(fn, backend="eager")
    for args in ones():
        (x, found), (y, expected) = compiled(*args), fn(*args)
        assert torch.equal(x, y) and str(found) == str(expected)


@program
def test_iterators_that_cannot_be_read_ahead():
    def fn(x):
        for at in collections.deque([0, 1, 2]):
            x = x.sin() + at
            breaks_at_first(at)
        numbers = iter([1, 2, 3])
        next(numbers)
        burnish.graph_break()
        return x * operator.length_hint(numbers)

    return fn, ones()


@program
def test_effects_keep_their_order_around_steps():
    seen = []

    def fn(x):
        numbers = iter([1, 2, 3, 4])
        for number in numbers:
            seen.append(number)
            x = x.sin()
            burnish.graph_break()
            seen.append(next(numbers, None))
        return x, len(seen)

    return fn, ones(), seen


@program
def test_star_arguments_half_built_at_a_break():
    def broken(x):
        x = x.sin()
        burnish.graph_break()
        return x.cos()

    def total(*args, **named):
        return sum(args) + sum(named.values())

    return lambda x: total(x.sin(), *[x, broken(x)], k=x.cos(), **{"z": broken(x)}), ones()


@program
def test_inference_mode_around_a_break():
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            burnish.graph_break()
            y = y + 1
        return y.is_inference(), y.clone(), torch.is_inference_mode_enabled()

    return fn, ones()


@program
def test_callbacks_of_an_exit_stack_around_a_break():
    import contextlib

    seen = []

    def fn(x):
        with contextlib.ExitStack() as stack:
            stack.callback(seen.append, "left")
            stack.enter_context(torch.no_grad())
            x = x.sin()
            burnish.graph_break()
            x = x.cos()
        return x + 1

    return fn, ones(), seen
