"""functools: partial, wraps, caches, reduce, singledispatch, total_ordering."""

import functools
import re

import pytest
import torch

import burnish

from ..recorded_events import recorded
from .call_sequences import Before, ordinary, swing, swinging
from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_partial_with_positions_and_keywords():
    def affine(scale, x, *, shift=0.0):
        return x * scale + shift

    def fn(x):
        double = functools.partial(affine, 2.0, shift=1.0)
        return double(x), double(x, shift=x.sin())

    return fn, ordinary


@program(breaks=0)
def test_partial_of_a_torch_function():
    half = functools.partial(torch.mul, other=0.5)

    def fn(x):
        return half(x) + functools.partial(torch.sum, dim=0, keepdim=True)(x)

    return fn, ordinary


@program
def test_partial_attributes_and_nesting():
    def total(*args, **kwargs):
        return sum(args) + sum(kwargs.values())

    def fn(x):
        one = functools.partial(total, x, a=1)
        two = functools.partial(one, 2, a=x, b=3)
        return two(4), two.args, sorted(two.keywords), two.func is total

    return fn, ordinary


@program
def test_partial_given_another_target_between_calls():
    steps = {"act": functools.partial(torch.clamp, min=0.0)}

    def fn(x):
        return steps["act"](x) + 1

    x = torch.randn(4)
    return fn, [
        (x,),
        (x, Before(lambda: steps.update(act=functools.partial(torch.clamp, min=0.5)))),
        (x, Before(lambda: steps.update(act=functools.partial(torch.clamp, min=0.0)))),
        (x, Before(lambda: steps["act"].keywords.update(min=0.25))),
    ]


@program
def test_partial_returned_and_called_afterwards():
    made, seen = [], []

    def fn(x):
        y = x * 2
        made.append(functools.partial(torch.add, y, alpha=3))
        return y

    def use():
        seen.append(made[-1](torch.ones(4)))

    return (
        fn,
        [
            (torch.randn(4),),
            (torch.randn(4), Before(use)),
            (torch.randn(4), Before(use)),
            (torch.randn(4), Before(use)),
        ],
        seen,
    )


@program
def test_wraps_keeps_name_and_passes_through():
    def traced(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            inner.calls += 1
            return f(*args, **kwargs) * inner.calls

        inner.calls = 0
        return inner

    @traced
    def layer(x, by=2):
        """A layer."""
        return x * by

    def fn(x):
        return layer(x) + layer(x, by=3), layer.__name__, layer.__doc__, layer.__wrapped__(x)

    return fn, ordinary, vars(layer)


@program
def test_decorated_function_is_the_compiled_one():
    def scaled(by):
        def wrap(f):
            @functools.wraps(f)
            def inner(*args, **kwargs):
                return f(*args, **kwargs) * by

            return inner

        return wrap

    @scaled(2)
    @scaled(3)
    def fn(x, shift=1):
        return x + shift

    return fn, [(torch.randn(2),), (torch.randn(2), 5), (torch.randn(2),)]


@program
def test_lru_cache_of_a_pure_shape_function():
    computed = []

    @functools.lru_cache(maxsize=None)
    def positions(n):
        computed.append(n)
        return torch.arange(n, dtype=torch.float32)

    def fn(x):
        return x + positions(x.shape[0])

    return fn, [(torch.randn(n),) for n in (3, 3, 4, 3)], computed


@program
def test_lru_cache_returns_the_same_object_and_counts():
    @functools.lru_cache(maxsize=2)
    def scale(n):
        return [n * 10]

    def fn(x, n):
        a, b = scale(n), scale(n)
        info = scale.cache_info()
        return x * a[0], a is b, info.hits, info.misses, info.currsize

    return fn, [(torch.randn(2), n) for n in (1, 2, 1, 3, 1)]


@program_with_caller(breaks=0)
def test_lru_cache_returns_objects_that_change():
    class Table:
        def __init__(self, n):
            self.shift, self.rows, self.weight = n, [n, (n, [n])], torch.ones(3)

    table = functools.lru_cache(maxsize=4)(Table)

    def fn(x):
        t = table(2)
        t.rows.append(1)
        return x * t.weight + t.shift + t.rows[0] + t.rows[1][1][0] + len(t.rows)

    def caller(fn, x, change):
        t = table(2)
        if change == "shift":
            t.shift += 1
        elif change == "inside":
            t.rows[1][1][0] += 1
        elif change == "tensor":
            t.weight.add_(1)
        elif change == "cleared":
            table.cache_clear()
        return fn(x), table.cache_info().currsize

    return fn, caller, [(torch.randn(3), c) for c in ("", "", "shift", "inside", "tensor", "cleared", "")]


@program
def test_cache_cleared_between_calls():
    source = {"scale": 2.0}

    @functools.cache
    def scale():
        return source["scale"]

    def fn(x):
        return x * scale()

    x = torch.randn(2)

    def change():
        source["scale"] = 5.0

    return fn, [(x,), (x, Before(change)), (x, Before(scale.cache_clear)), (x,)]


@program
def test_reduce_over_tensors_and_over_sizes():
    def fn(x, *more):
        total = functools.reduce(lambda a, b: a * 2 + b, more, x)
        size = functools.reduce(lambda a, b: a * b, x.shape, 1)
        return total, x.reshape(size)

    return fn, [(torch.randn(2, 2),), (torch.randn(2, 2), torch.randn(2, 2), torch.randn(2, 2)), (torch.randn(2, 2),)]


@program
def test_reduce_of_nothing():
    def fn(x, items):
        try:
            return functools.reduce(torch.add, items) + x
        except TypeError as error:
            return x, str(error)

    return fn, [(torch.randn(2), [torch.randn(2)] * n) for n in (1, 0, 2, 1)]


@program
def test_reduce_over_what_has_no_elements():
    def fn(x):
        try:
            return functools.reduce(torch.add, 5)
        except TypeError as error:
            return x, str(error)

    return fn, lambda i: (torch.ones(2),)


@program
def test_reduce_with_a_break_in_its_function():
    def fn(*xs):
        def pick(a, b):
            return a + b if b.sum() > 0 else a - b

        return functools.reduce(pick, xs)

    return fn, lambda i: (swing(i), swing(i + 1), swing(i))


@program
def test_singledispatch_on_the_first_argument():
    @functools.singledispatch
    def scaled(thing, by):
        return thing

    @scaled.register
    def _(thing: torch.Tensor, by):
        return thing * by

    @scaled.register(list)
    def _(thing, by):
        return [scaled(t, by) for t in thing]

    def fn(thing):
        return scaled(thing, 2)

    return fn, [(torch.randn(2),), ([torch.randn(2), [torch.randn(1), "a"]],), (3,), (torch.randn(2),)]


@program
def test_singledispatch_registered_between_calls():
    @functools.singledispatch
    def size(thing):
        return 1

    def fn(x, thing):
        return x * size(thing)

    x = torch.randn(2)
    return fn, [(x, "ab"), (x, "ab", Before(lambda: size.register(str, len))), (x, 5)]


@program
def test_singledispatchmethod():
    class Scaler:
        by = 3

        @functools.singledispatchmethod
        def apply(self, thing):
            return None

        @apply.register
        def _(self, thing: torch.Tensor):
            return thing * self.by

        @apply.register
        def _(self, thing: int):
            return thing + self.by

    scaler = Scaler()

    def fn(x):
        return scaler.apply(x), scaler.apply(x.shape[0]), scaler.apply("text")

    return fn, ordinary


@program
def test_total_ordering_fills_in_comparisons():
    @functools.total_ordering
    class Priority:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    def fn(x, n):
        a, b = Priority(n), Priority(2)
        return x * (2 if a >= b else 3), a > b, a <= b, max(a, b).n, [p.n for p in sorted([b, a])]

    return fn, [(torch.randn(2), n) for n in (1, 2, 3, 1)]


@program
def test_cmp_to_key_sorts_tensors_by_size():
    def fn(*xs):
        def compare(a, b):
            return a.numel() - b.numel()

        return [x + 1 for x in sorted(xs, key=functools.cmp_to_key(compare))]

    return fn, [
        (torch.randn(3), torch.randn(1), torch.randn(2)),
        (torch.randn(1), torch.randn(2)),
        (torch.randn(3), torch.randn(1), torch.randn(2)),
    ]


@program
def test_comparisons_of_a_sort_come_in_their_order():
    """Ascending and descending runs, equal keys in them, and elements that are inserted."""

    def fn(x, values, reverse):
        asked = []

        def compare(a, b):
            asked.append((a[0], b[0]))
            return a[1] - b[1]

        pairs = list(enumerate(values))
        first = sorted(pairs, key=functools.cmp_to_key(compare), reverse=reverse)
        pairs.sort(key=functools.cmp_to_key(compare))
        return x + len(asked), asked, first, pairs

    lists = [(3, 1, 2), (1, 1, 0, 1), (3, 2, 2, 1, 4, 0), (1, 2, 3), (2, 2, 1, 1, 1, 0, 5, 3), (0,), ()]
    return fn, [(torch.randn(2), values, reverse) for values in lists for reverse in (False, True)]


@program
def test_partialmethod_binds_its_object():
    class Layer:
        by = 4

        def scale(self, x, mode):
            return x * self.by if mode == "up" else x / self.by

        up = functools.partialmethod(scale, mode="up")
        down = functools.partialmethod(scale, mode="down")

    layer = Layer()

    def fn(x):
        return layer.up(x) + layer.down(x)

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: setattr(layer, "by", 8))), (x,)]


@program
def test_composition_of_functions_by_reduce():
    def fn(x, names):
        table = {"sin": torch.sin, "double": lambda y: y * 2, "shift": functools.partial(torch.add, other=1)}
        composed = functools.reduce(lambda f, g: lambda y: g(f(y)), [table[n] for n in names])
        return composed(x)

    return fn, [(torch.randn(2), n) for n in (["sin", "double"], ["shift", "sin", "double"], ["sin", "double"])]


@program
def test_cached_tensor_depends_on_data_of_the_first_call():
    memo = functools.lru_cache(lambda key: torch.full((2,), float(key)))

    def fn(x):
        key = 1 if x.sum() > 0 else 2
        return x[:2] + memo(key), memo.cache_info().currsize

    return fn, swinging


@program
def test_partial_of_a_partial_made_before_a_break_is_flat():
    @torch.compiler.disable
    def outside(x):
        pass

    def total(*args, **kwargs):
        return sum(args) + sum(kwargs.values())

    def fn(x):
        one = functools.partial(total, x, a=1)
        outside(x)
        two = functools.partial(one, 2, b=3)
        return two(4), two.args, two.func is total, vars(one)

    return fn, ordinary


@program_with_caller(breaks=0)
def test_single_dispatch_by_type():
    @functools.singledispatch
    def scaled(value, x):
        return x

    scaled.register(int)(lambda value, x: x * value)
    scaled.register(str)(lambda value, x: x + len(value))

    class Model:
        @functools.singledispatchmethod
        def shifted(self, value, x):
            return x - 1

        @shifted.register
        def _(self, value: float, x):
            return x + value

    model = Model()

    def fn(x, value):
        return scaled(value, x) + model.shifted(value, x)

    def caller(fn, x, value, late):
        if late:
            scaled.register(float)(lambda value, x: x * 100)
        return fn(x, value)

    values = [(3, False), ("abc", False), (None, False), (2.5, False), (2.5, True), (True, False)]
    return fn, caller, [(torch.randn(2), *each) for each in values]


@program(breaks=0)
def test_a_compiled_pattern_is_asked():
    pattern = re.compile(r"layer\.(\d+)")

    def fn(x, name):
        found = pattern.match(name)
        scale = int(found.group(1)) if found else 1
        return x * scale, pattern.sub("#", name), pattern.findall(name), re.split(r"\.", name)

    return fn, [(torch.randn(2), name) for name in ("layer.3", "head", "layer.4")]


CACHES = {
    "unbounded": functools.cache,
    "bounded": functools.lru_cache(maxsize=8),
    "typed": functools.lru_cache(typed=True),
    "empty": functools.lru_cache(maxsize=0),
}


@pytest.mark.parametrize("keywords", [{}, {"by": 2}], ids=str)
@pytest.mark.parametrize("cache", CACHES.values(), ids=CACHES)
def test_result_that_a_cleared_cache_computes_again_is_seen(cache, keywords):
    state = {"scale": 1}

    @cache
    def table(name, by=1):
        return [state["scale"] * by]

    def fn(x, name):
        return x * table(name, **keywords)[0]

    compiled = burnish.compile(fn, fullgraph=cache is not CACHES["empty"], backend="eager")
    for name, clears in [
        ("a", False),
        ("b", False),
        ("a", True),
        ("b", False),
        ("a", False),
        ("b", True),
        ("a", False),
    ]:
        state["scale"] += 1
        if clears:
            table.cache_clear()
            table("another")
            table("third")
        found = compiled(torch.ones(2), name)
        assert torch.equal(found, fn(torch.ones(2), name))


@pytest.mark.parametrize("maxsize", [None, 8])
@pytest.mark.parametrize("results", [(None, 3, None), ({"name": 1}, {"name": 2}, {}), (1.0, 1.0, 2.0)], ids=str)
def test_results_of_any_type_are_those_in_the_cache(results, maxsize):
    state = {}

    @functools.lru_cache(maxsize)
    def held(name):
        return state["result"]

    def fn(x, name):
        return x + 1, held(name)

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    for result in results:
        state["result"] = result
        for name in ("name", "other", "name"):
            assert compiled(torch.ones(2), name)[1] is result
        held.cache_clear()


def test_a_full_cache_that_makes_room_needs_no_other_graph():
    one = functools.lru_cache(maxsize=1)(lambda name: len(name))

    def fn(x, name):
        return x * one(name)

    compiled = burnish.compile(fn, fullgraph=True, backend="eager")
    with recorded("segment") as segments:
        for name in ("a", "bc") * 6:
            assert torch.equal(compiled(torch.ones(2), name), fn(torch.ones(2), name))
    assert len(segments) == 2


def test_guards_on_a_cache_do_not_print_what_is_in_it():
    class Silent:
        def __repr__(self):
            raise AssertionError("printed")

    silent = functools.cache(lambda name: Silent())
    silent("another")
    compiled = burnish.compile(lambda x, name: (x + 1, silent(name)), backend="eager")
    compiled(torch.ones(2), "a")
    with recorded() as events:
        silent.cache_clear()
        compiled(torch.ones(2), "a")
    assert "printed" not in str([vars(event) for event in events])
