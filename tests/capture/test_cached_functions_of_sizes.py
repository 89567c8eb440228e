"""Functions behind ``functools.lru_cache`` that get sizes which change from call to call."""

import functools

import torch

import burnish

from .call_sequences import Before
from .harness import program

SIZES = (4, 5, 6, 7, 4, 9)


def sized(change=None):
    return [
        (torch.randn(n, 5, 6), Before(functools.partial(change, i) if change else int)) for i, n in enumerate(SIZES)
    ]


class Config:
    factor = 2


class Recipe:
    """How a tensor is rearranged, for any sizes."""

    def __init__(self):
        self.axes, self.order, self.added = [0, None, 2], [1, 0], {1: 0}


def uncached(recipe, shape, lengths):
    sizes = list(shape)
    for axis, length in lengths:
        sizes[axis] = length
    product = 1
    for size in sizes[1:]:
        product *= size
    if product % 2 != 0:
        raise ValueError("cannot be divided")
    return [sizes[0], product], recipe.order, {at: sizes[axis] for at, axis in recipe.added.items()}, None


cached = functools.lru_cache(1024)(uncached)


def rearranged(x, recipe):
    try:
        shape, order, added, last = cached(recipe, x.shape, ())
    except TypeError:  # the sizes have no hash
        shape, order, added, last = uncached(recipe, x.shape, ())
    x = x.reshape(shape)
    if order is not None:
        x = x.permute(order)
    for at, length in added.items():
        x = x.unsqueeze(at).expand(-1, length, -1)
    return x if last is None else x.reshape(last)


@program
def test_recipe_for_any_sizes_is_one_graph():
    recipe = Recipe()
    return lambda x: rearranged(x, recipe) * 2 + rearranged(x.sin(), recipe), sized()


@program
def test_shape_is_computed_from_the_shape():
    @functools.lru_cache(64)
    def shapes(shape):
        return [shape[0], shape[1] * shape[2]], len(shape)

    return lambda x: (x.reshape(shapes(tuple(x.shape))[0]) * 2, len(shapes(tuple(x.shape)))), sized()


@program
def test_results_of_other_state_stay_in_the_cache():
    config = Config()

    @functools.cache
    def scaled(n):
        return [n * config.factor]

    def change(i):
        if i == 2:
            config.factor = 3
        if i == 5:
            scaled.cache_clear()

    return lambda x: x * scaled(x.shape[0])[0], sized(change)


@program
def test_state_is_written_around_the_call():
    config, counted = Config(), Config()

    @functools.cache
    def scaled(n):
        return [n * config.factor, n * counted.factor]

    def fn(x):
        first = scaled(x.shape[0])[0]
        counted.factor = counted.factor + 1
        return x * first + scaled(x.shape[0] + 1)[1]

    return fn, sized(), counted


@program
def test_cached_list_is_changed():
    @functools.cache
    def shape(n):
        return [n, -1]

    def fn(x):
        found = shape(x.shape[0])
        y = x.reshape(found[:2]) * len(found)
        found.append(found[0])
        return y, shape(x.shape[0])[-1]

    return fn, sized(lambda i: shape(5).append(i))


@program
def test_cached_list_is_changed_by_another_name():
    @functools.cache
    def shape(n):
        return [n, -1]

    config = Config()

    def fn(x):
        found = shape(x.shape[0])
        config.last.append(1)
        return x * len(found), len(config.last)

    return fn, sized(lambda i: setattr(config, "last", shape(SIZES[i] if i % 2 else 3)))


@program
def test_cached_list_was_known_by_another_name():
    @functools.cache
    def shape(n):
        return [n, -1]

    config = Config()

    def fn(x):
        before = config.last
        found = shape(x.shape[0])
        before.append(1)
        return x * len(found), len(before), before is found

    return fn, sized(lambda i: setattr(config, "last", shape(SIZES[i] if i % 2 else 3)))


@program
def test_cached_list_leaves_the_function():
    @functools.cache
    def shape(n):
        return [n, [n * 2]]

    def fn(x):
        found, again = shape(x.shape[0]), shape(x.shape[0])
        return x * found[0], found is again, found

    def leaves(x):
        y, is_same, found = fn(x)
        return y, is_same, found is shape(x.shape[0]), found[1] is shape(x.shape[0])[1]

    return leaves, sized()


@program
def test_cached_list_is_held_over_a_break():
    @functools.cache
    def shape(n):
        return [n, -1]

    @torch.compiler.disable
    def is_cached(found):
        return found is shape(found[0])

    def fn(x):
        found = shape(x.shape[0])
        return x.reshape(found), is_cached(found), found[1]

    return fn, sized()


@program
def test_function_with_effects_runs_once_for_each_size():
    computed = []

    @functools.cache
    def shape(n):
        computed.append(n)
        return [n, -1]

    return lambda x: x.reshape(shape(x.shape[0])) * 2, sized(), computed


@program
def test_cache_counts_the_calls():
    @functools.lru_cache(2)
    def halves(n, *, by):
        return {"n": n / by, "by": [n // by, by]}

    def fn(x):
        first = halves(x.shape[0], by=2)
        return x * first["n"] + halves(x.shape[0] + 1, by=2)["by"][0], halves.cache_info()

    return fn, sized()


@program
def test_function_branches_on_the_size_and_raises():
    @functools.cache
    def shape(n):
        if n == 6:
            raise ValueError("six")
        return [n, -1] if n < 7 else [n, 5, -1]

    def fn(x):
        try:
            return x.reshape(shape(x.shape[0])) * 2
        except ValueError as error:
            return str(error)

    return fn, sized()


def test_returned_list_is_the_cached_one():
    @functools.cache
    def shape(n):
        return [n, -1]

    compiled = burnish.compile(lambda x: (x * 2, shape(x.shape[0])), backend="eager")
    for n in SIZES:
        assert compiled(torch.randn(n, 3))[1] is shape(n)
