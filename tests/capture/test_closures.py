"""Closures: cells read, rebound, shared, made inside the compiled function and called after it."""

import os

import pytest
import torch

import burnish

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program(breaks=0)
def test_closure_reads_a_tensor_of_the_enclosing_scope():
    weight = torch.arange(4.0)

    def fn(x):
        return x * weight

    return fn, ordinary


@program(breaks=0)
def test_inner_function_sees_the_argument_of_the_outer_one():
    def fn(x, scale):
        def scaled(y):
            return y * scale + x

        return scaled(x.relu())

    return fn, [(torch.randn(4), 2.0), (torch.randn(4), 3.0), (torch.randn(4), 2.0)]


@program
def test_cell_rebound_between_calls_is_seen():
    scale = 2.0

    def fn(x):
        return x * scale

    def set_scale(value):
        nonlocal scale
        scale = value

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: set_scale(5.0))), (x, Before(lambda: set_scale(2.0))), (x,)]


@program
def test_cell_rebound_to_another_tensor_between_calls_is_seen():
    bias = torch.zeros(3)

    def fn(x):
        return x + bias

    def set_bias(value):
        nonlocal bias
        bias = value

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: set_bias(torch.ones(3)))),
        (x, Before(lambda: set_bias(torch.ones(1)))),
        (x, Before(lambda: set_bias(torch.ones(3, dtype=torch.float64)))),
    ]


@program
def test_nonlocal_counter_goes_up_on_every_call():
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x + count

    return fn, ordinary


@program
def test_nonlocal_tensor_accumulates_over_calls():
    total = torch.zeros(4)

    def fn(x):
        nonlocal total
        total = total + x
        return total.clone()

    return fn, ordinary


@program
def test_cell_shared_by_two_inner_functions():
    def fn(x):
        state = x

        def push(y):
            nonlocal state
            state = state + y

        def read():
            return state * 2

        push(x.sin())
        first = read()
        push(x.cos())
        return first, read()

    return fn, ordinary


@program
def test_cell_shared_with_a_function_outside_is_written_for_it():
    seen = None

    def fn(x):
        nonlocal seen
        seen = x.sum()
        return x * 2

    kept = []

    def look():
        kept.append(seen.item())

    x = torch.randn(3)
    return fn, [(x,), (x + 1, Before(look)), (x - 1, Before(look)), (x, Before(look))], kept


@program
def test_closure_returned_and_called_afterwards():
    made, seen = [], []

    def fn(x, scale):
        y = x.sin()

        def later(z):
            return z * scale + y

        made.append(later)
        return y

    def use():
        seen.extend(later(torch.ones(3)) for later in made)

    return (
        fn,
        [
            (torch.randn(3), 2),
            (torch.randn(3), 3, Before(use)),
            (torch.randn(3), 2, Before(use)),
            (torch.randn(3), 2, Before(use)),
        ],
        seen,
    )


@program(breaks=0)
def test_functions_without_free_variables_have_no_closure():
    def fn(x):
        def inner(y, k=2, *, by=1):
            return y

        return x + 1, [f.__closure__ for f in (inner, lambda y: y, lambda y, z=3: y)], (lambda: x).__closure__ is None

    return fn, lambda i: (torch.randn(3),)


@program
def test_two_returned_closures_still_share_their_cell():
    made, seen = [], []

    def fn(x):
        total = x.sum()

        def add(y):
            nonlocal total
            total = total + y

        def read():
            return total

        made.append((add, read))
        return total * 2

    def use():
        add, read = made[-1]
        add(10.0)
        seen.append(read())

    return fn, [(torch.randn(3),)] + [(torch.randn(3), Before(use)) for _ in range(3)], seen


@program
def test_late_binding_of_a_loop_variable():
    def fn(x):
        steps = []
        for i in range(3):
            steps.append(lambda y: y + i)
        i = 10
        for step in steps:
            x = step(x)
        return x

    return fn, ordinary


@program(breaks=0)
def test_default_argument_freezes_a_loop_variable():
    def fn(x):
        steps = [lambda y, i=i: y * (i + 1) for i in range(3)]
        for step in steps:
            x = step(x)
        return x

    return fn, ordinary


@program
def test_closure_variable_deleted_then_read():
    def fn(x):
        scale = 2

        def inner(y):
            return y * scale  # noqa: F821

        x = inner(x)
        del scale
        try:
            return inner(x)
        except NameError as error:
            return x, type(error).__name__, str(error)

    return fn, ordinary


@program
def test_free_variable_used_before_assignment():
    def fn(x):
        def inner():
            return offset + x

        if x.sum() > 0:
            offset = 1
        return inner()

    return fn, swinging


@program
def test_closed_over_list_is_appended_to():
    history = []

    def fn(x):
        history.append(x.mean())
        return torch.stack(history).sum()

    return fn, ordinary, history


@program
def test_closed_over_dict_is_updated_around_a_break():
    stats = {"calls": 0}

    def fn(x):
        stats["calls"] += 1
        stats["mean"] = x.mean()
        if x.sum() > 0:
            stats["positive"] = stats.get("positive", 0) + 1
        stats["last"] = x * stats["calls"]
        return stats["last"] + 1

    return fn, swinging, stats


@program
def test_closure_attribute_changed_between_calls_is_seen():
    def scale(x):
        return x * scale.factor

    scale.factor = 2.0

    def fn(x):
        return scale(x) + 1

    x = torch.randn(3)
    return fn, [(x,), (x, Before(lambda: setattr(scale, "factor", 3.0))), (x,)]


@program
def test_inner_function_replaced_between_calls_is_seen():
    def activation(x):
        return x.relu()

    def fn(x):
        return activation(x) + 1

    def replace(other):
        nonlocal activation
        activation = other

    x = torch.randn(4)
    return fn, [(x,), (x, Before(lambda: replace(torch.tanh))), (x, Before(lambda: replace(lambda y: y * 2))), (x,)]


@program
def test_code_of_an_inner_function_replaced_between_calls_is_seen():
    def activation(x):
        return x.relu()

    def fn(x):
        return activation(x) + 1

    def swap():
        activation.__code__ = (lambda x: x.abs()).__code__

    x = torch.randn(4)
    return fn, [(x,), (x, Before(swap)), (x,)]


@program
def test_cell_contents_set_directly_are_seen():
    scale = 2.0

    def fn(x):
        return x * scale

    def poke(value):
        fn.__closure__[0].cell_contents = value

    x = torch.randn(3)
    return fn, [
        (x,),
        (x, Before(lambda: poke(4.0))),
        (x, Before(lambda: poke(torch.ones(3)))),
        (x, Before(lambda: poke(2.0))),
    ]


@program(breaks=0)
def test_three_levels_of_nesting():
    def fn(x, a):
        def one(b):
            def two(c):
                def three(d):
                    return x * a + b * c - d

                return three

            return two

        return one(2)(3)(4)

    return fn, [(torch.randn(3), 2), (torch.randn(3), 2), (torch.randn(3), 5)]


@program
def test_nonlocal_written_two_levels_up_with_a_break_between():
    def fn(x):
        depth = 0

        def one():
            def two():
                nonlocal depth
                depth += 1
                if x.sum() > 0:
                    depth += 10
                return depth

            return two() + two()

        return x + one(), depth

    return fn, swinging


@program
def test_decorator_made_inside_the_function():
    def fn(x):
        def twice(f):
            def inner(y):
                return f(f(y))

            return inner

        @twice
        def step(y):
            return y.sin() + 1

        return step(x)

    return fn, ordinary


@program
def test_function_passed_as_argument_changes_between_calls():
    def fn(x, f):
        return f(x) + 1

    def shifted(n):
        return lambda y: y + n

    return fn, [
        (torch.randn(3), shifted(1)),
        (torch.randn(3), shifted(2)),
        (torch.randn(3), torch.sin),
        (torch.randn(3), shifted(1)),
    ]


@program
def test_memo_in_a_closure_returns_the_same_tensor():
    memo = {}

    def fn(x, key):
        if key not in memo:
            memo[key] = x * 2
        return memo[key], memo[key] is memo.get(key), len(memo)

    return fn, [(torch.randn(3), "a"), (torch.randn(3), "a"), (torch.randn(3), "b"), (torch.randn(3), "a")], memo


@program
def test_generator_closure_reads_the_cell_when_resumed():
    def fn(x):
        scale = 1

        def scaled():
            while True:
                yield x * scale

        values = scaled()
        first = next(values)
        scale = 5
        return first, next(values)

    return fn, lambda i: (swing(i),)


@pytest.mark.parametrize("value", [NotImplemented, Ellipsis, None, 1])
def test_cell_holds_a_singleton(value):
    def held(x, v):
        get = lambda: v  # noqa: E731
        os.getpid()
        return x + 1, get()

    def left(x, v):
        return x + 1, lambda: v

    def assigned(x, v):
        def put():
            nonlocal kept
            kept = v

        put()
        return x + 1

    kept = None
    compiled = [burnish.compile(fn, backend="eager") for fn in (held, left, assigned)]
    for v in (value, 2, value, value):
        assert compiled[0](torch.ones(2), v)[1] is v
        assert compiled[1](torch.ones(2), v)[1]() is v
        compiled[2](torch.ones(2), v)
        assert kept is v
