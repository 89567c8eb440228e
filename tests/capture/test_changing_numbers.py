"""Numbers of the program that change from call to call, as arguments of torch calls: one graph, and eager's errors."""

import operator
import threading

import pytest
import torch

import burnish
from burnish import events

X = torch.arange(1, 7).view(2, 3)
SMALL = (2, 3, 5, 0, 1, -1, -3, 7)
LARGE = (2**31, 2**40, -(2**40), 2**62, -(2**63), 2**63, 2**64)


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def check(fn, values, most, backend="burnish", given=X):
    """Compare with plain Python for each value, and return how many graphs were made."""
    graphs = []
    stop = events.subscribe(lambda event: graphs.append(event.data["segment"].graph), ("segment",))
    try:
        with burnish.settings.patch(never_slower=False):
            compiled = burnish.compile(fn, backend=backend)
            for value in values:
                want, got = outcome(fn, given.clone(), value), outcome(compiled, given.clone(), value)
                if isinstance(want, torch.Tensor):
                    assert isinstance(got, torch.Tensor), (value, got)
                    torch.testing.assert_close(got, want, equal_nan=True)
                    assert got.stride() == want.stride()
                else:
                    assert got == want, value
    finally:
        stop()
    assert len([graph for graph in graphs if graph is not None]) <= most


OPERATORS = "eq ne pow floordiv mod lshift rshift and_ or_ xor"
MADE = {
    "tensor": lambda x, n: torch.tensor(n) + x,
    "tensor of a list": lambda x, n: torch.tensor([n, 1, -n]) + x,
    "tensor of a fraction": lambda x, n: torch.tensor(n * 0.5) + x,
    "tensor of half precision": lambda x, n: torch.tensor(n, dtype=torch.half) + x,
    "as_tensor": lambda x, n: torch.as_tensor(n) * x,
    "new_tensor": lambda x, n: x.new_tensor(n) * x,
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n, dtype=torch.int64) * x,
    "item of a tensor": lambda x, n: torch.tensor(n).item() * x,
    "int of a tensor": lambda x, n: int(torch.tensor(n)) * x,
    "item of a changed tensor": lambda x, n: torch.tensor(n).add_(1).item() * x,
    "an index": lambda x, n: x[:, torch.tensor(n)] * 2,
}


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("name", OPERATORS.split())
def test_operators_take_changing_integers(name, backend):
    operation = getattr(operator, name)
    check(lambda x, n: operation(x, n), SMALL + LARGE, 2, backend)


@pytest.mark.parametrize("name", ["pow", "floordiv", "mod", "lshift", "rshift", "and_", "xor"])
def test_reflected_operators_take_changing_integers(name):
    operation = getattr(operator, name)
    check(lambda x, n: operation(n, x), SMALL + LARGE[:-1], 2)


@pytest.mark.parametrize("backend", ["eager", "burnish"])
@pytest.mark.parametrize("name", MADE)
def test_tensors_of_changing_numbers_are_made_in_the_graph(name, backend):
    most = 4 if "half" in name else 3  # one for each infinity
    check(MADE[name], SMALL + LARGE, most, backend)


def test_branches_on_tensors_of_changing_numbers_are_guarded():
    check(lambda x, n: x * 2 if torch.tensor(n) > 3 else x * 3, (2, 3, 4, 5, 3, 9), 8)
    check(lambda x, n: torch.zeros(torch.tensor(n)) + 1, (2, 3, 4, 0), 4)


CONVERTED = {
    "full": lambda x, n: torch.full((2,), n, dtype=torch.int32) + 1,
    "full_like": lambda x, n: torch.full_like(x, n, dtype=torch.int8) + 1,
    "new_full": lambda x, n: x.to(torch.uint8).new_full((2,), n) + 1,
    "fill_": lambda x, n: torch.empty(2, dtype=torch.int8).fill_(n) + 1,
    "fill_ of half precision": lambda x, n: torch.empty(2, dtype=torch.half).fill_(n) + 1,
    "masked_fill": lambda x, n: x.int().masked_fill(x > 2, n) * 2,
    "masked_fill by a fraction": lambda x, n: x.int().masked_fill(x > 2, n * 1.5) * 2,
    "clamp": lambda x, n: x.int().clamp(0, n) * 2,
    "where": lambda x, n: torch.where(x > 1, x.int(), n) * 2,
    "alpha": lambda x, n: torch.add(x.int(), x.int(), alpha=n) * 2,
    "a power": lambda x, n: x.half() ** n * 2,
    "a part": lambda x, n: x.int().index_fill_(0, torch.tensor([0]), 1)[:, 0].fill_(n) + 1,
    "a number of a tensor": lambda x, n: torch.full((2,), (x.sum() * 0 + n).item(), dtype=torch.int32) * 2,
}


@pytest.mark.parametrize("name", CONVERTED)
def test_numbers_that_do_not_fit_into_a_dtype_raise(name):
    check(CONVERTED[name], (2, 3, 5, 4, 2**31, 300, 2**40, -(2**40), 4), 2)


def test_fractions_become_integers_without_rounding():
    check(lambda x, n: torch.full((2,), n * 1.0, dtype=torch.int64) + 1, (2, 3, 2**24 + 1, 2**40 + 1, 2**53 + 2), 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_powers_that_change_have_the_zeros_and_infinities_of_eager(dtype):
    given = torch.tensor([0.0, -0.0, 1, -1, 2, -2.5, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    check(lambda x, n: (x**n).sign() * 2, (3.0, 2.5, 1.5, -1.5, -0.5, 0.5, 2.0, 0.0, -1.0, -2.0), 2, given=given)
    check(lambda x, n: 1 / x**n, (3.0, 2.5, 1.5, -1.5, -0.5, 0.5, 2.0, 0.0, -1.0, -2.0), 2, given=given)


FILLING = {
    "full": lambda x, n: torch.full((2, 3), n) * 2,
    "full_like": lambda x, n: torch.full_like(x, n, dtype=torch.float32) * 2,
    "new_full": lambda x, n: x.float().new_full((2,), n) * 2,
    "fill_": lambda x, n: torch.empty(2).fill_(n) * 2,
}


@pytest.mark.parametrize("name", FILLING)
def test_fractions_that_do_not_fit_into_a_dtype_raise(name):
    check(FILLING[name], (0.5, 1.5, 2.5, 1e300, -1e300, float("inf"), 3.5), 4)


def unpacked(x, numbers):
    first, second = numbers
    return x * first + second


def multiplied(x, numbers):
    for number in numbers:
        x = x * number
    return x


def given_with_a_star(x, numbers):
    return multiplied(x, [*numbers, max(*numbers)])


WHOLE = {
    "unpacked": unpacked,
    "with a star": given_with_a_star,
    "in a sum": lambda x, numbers: x * sum(numbers),
    "the larger": lambda x, numbers: x * max(numbers) - min(numbers),
}


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", WHOLE)
def test_numbers_of_a_list_that_is_read_as_a_whole_stay_live(name, kind):
    check(WHOLE[name], [kind((i + 4, i + 9)) for i in range(5)], 2, backend="eager")


def test_list_from_outside_keeps_plain_numbers():
    numbers, kept = [3, 4], []

    def fn(x):
        first, _ = numbers
        kept.extend(numbers)
        kept.append(sum(numbers))
        return x * first, numbers

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for i in range(4):
        numbers[:] = [i + 3, i + 4]
        result, same = compiled(X)
        assert same is numbers
        assert kept[-3:] == [i + 3, i + 4, 2 * i + 7]
        assert {type(number) for number in (*numbers, *kept)} == {int}
        assert torch.equal(result, X * (i + 3))


def test_other_threads_see_plain_numbers_in_a_list_that_is_traced():
    numbers, found, is_done = [1, 2], set(), threading.Event()

    def watch():
        while not is_done.is_set():
            found.update(map(type, list(numbers)))

    def fn(x):
        first, second = numbers
        for _ in range(100):
            x = x + first
        return x + sum(numbers) + max(*numbers) + second

    compiled = burnish.compile(fn, backend="eager")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for i in range(4):
            numbers[:] = [i + 1, i + 2]
            assert torch.equal(compiled(X), fn(X))
    finally:
        is_done.set()
        watcher.join()
    assert found == {int}


def test_list_that_grows_while_its_numbers_are_read():
    def fn(x, numbers):
        for number in numbers:
            x = x * number
            if len(numbers) < 4:
                numbers.extend(numbers)
        return x + len(numbers) + sum(numbers)

    for backend in ("eager", "burnish"):
        compiled = burnish.compile(fn, backend=backend)
        for i in range(4):
            want, got = [i + 2, i + 3], [i + 2, i + 3]
            assert torch.equal(compiled(X, got), fn(X, want))
            assert got == want


class Odd(int):
    """Its operators have effects."""

    def __radd__(self, other):
        asked.append("add")
        return int(self) + other + 100

    def __gt__(self, other):
        asked.append("greater")
        return int.__gt__(self, other)


asked: list[str] = []


@pytest.mark.parametrize(
    "compute",
    [sum, max, lambda numbers: max(*numbers), lambda numbers: numbers[0] + numbers[1]],
    ids=["sum", "max", "max of arguments", "add"],
)
@pytest.mark.parametrize("kind", [list, tuple])
def test_operators_of_a_subclass_run_as_often_as_in_python(kind, compute):
    def fn(x, numbers):
        return x, compute(numbers)

    compiled = burnish.compile(fn, backend="eager")
    for numbers in ([1, 2, 3], [2, 2, 3], [4, Odd(2), 3], [5, Odd(2), 3], [6, Odd(2), 3], [6, Odd(3), 3]):
        found = []
        for function in (fn, compiled):
            asked.clear()
            found.append((function(X, kind(numbers))[1], list(asked)))
        assert found[0] == found[1]


def test_tuples_that_hold_each_other_twice_are_not_followed():
    shared = (1,)
    for _ in range(60):
        shared = (shared, shared)

    def fn(x, n, pair):
        return x + n + len(pair[0]), pair[0] is pair[1]

    compiled = burnish.compile(fn, backend="eager")
    for n in (1, 1, 2, 3):
        result, is_shared = compiled(torch.zeros(2), n, shared)
        assert is_shared and torch.equal(result, torch.zeros(2) + n + 2)


def graphs_of(fn, make, calls=5):
    """How many graphs are compiled for calls with other numbers, whose results and arguments are as in eager."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    burnish.reset()
    compiled = burnish.compile(fn, backend=backend, fullgraph=True)
    for k in range(calls):
        given, own = make(k), make(k)
        expected, found = fn(torch.ones(3), given), compiled(torch.ones(3), own)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert own == given
    return len(graphs)


def in_a_loop(x, numbers):
    for number in numbers:
        x = x * number
    return x, len(numbers)


def in_a_comprehension(x, numbers):
    return [x + number for number in numbers], sum(number * x for number in numbers)


def sets_items(x, numbers):
    for at, number in zip((0, 1, 2), (1, 1, 1), strict=True):
        numbers[at] = numbers[at] + number
    for number in numbers:
        x = x * number
        numbers[-1] = 7
    return x


def side_by_side(x, numbers):
    for at, number in enumerate(numbers):
        x = x * number + at
    for one, other in zip(numbers, numbers, strict=True):
        x = x + one * other
    return x


@pytest.mark.parametrize("fn", [in_a_loop, in_a_comprehension, sets_items, side_by_side])
def test_numbers_of_a_list_are_live_in_a_loop(fn):
    assert graphs_of(fn, lambda k: [k + 2, k + 3, k + 4]) == 2


def test_zip_and_enumerate_of_numbers_that_change_are_those_of_python():
    def fn(x, numbers, kept):
        pairs, counted = zip(numbers, numbers, strict=True), enumerate(numbers, 1)
        next(pairs), next(counted)
        kept[:] = pairs, counted
        return x + 1, pairs.__reduce__()[0], list(enumerate(numbers)), type(zip(numbers)) is zip

    compiled = burnish.compile(fn, backend="eager")
    for k in range(4):
        kept = []
        result = compiled(X, [k + 0.5, k + 1.5], kept)
        assert result[1:] == (zip, [(0, k + 0.5), (1, k + 1.5)], True)
        assert (type(kept[0]), type(kept[1])) == (zip, enumerate)
        assert (list(kept[0]), list(kept[1])) == ([(k + 1.5, k + 1.5)], [(2, k + 1.5)])


def test_identity_of_numbers_that_change():
    def fn(x, numbers, number):
        table = {**dict(enumerate(numbers))}
        found = [n in numbers for n in numbers], [n is numbers[k] for k, n in enumerate(numbers)]
        five = 5
        told = numbers[0] is numbers[1], number is five, numbers[0] is number, number in numbers
        kept[:] = numbers[0], [n for n in numbers], [*numbers]  # noqa: C416
        return found, told, [table[k] is numbers[k] for k in range(len(numbers))], numbers.index(numbers[1])

    nan, kept = float("nan"), []
    compiled = burnish.compile(fn, backend="eager")
    for a, b, number in ((1.5, 2.5, 3), (2.5, 3.5, 4), (4.5, 5.5, 5), (nan, 2.5, 6), (nan, nan, 7), (7, 8, 7)):
        numbers = [a, b]
        expected = fn(X, numbers, number)
        assert compiled(X, numbers, number) == expected
        assert kept[0] is kept[1][0] is kept[2][0] is numbers[0]


def test_many_numbers_of_a_list_are_compiled_for():
    assert graphs_of(in_a_loop, lambda k: [k + 1.5] * 64) == 2
    assert graphs_of(in_a_loop, lambda k: [k + 1.5] * 65) == 5


def appends(x, numbers):
    for number in numbers:
        x = x * number + len(numbers)
        if len(numbers) < 5:
            numbers.append(number + 1)
    return x


def appends_behind(x, numbers):
    for at, number in enumerate(numbers):
        x = x * number
        if at < 2:
            numbers.append(number + at)
    return x


def pops(x, numbers):
    for number in numbers:
        x = x * number
        numbers.pop()
    return x


def compares(x, numbers):
    for number in numbers:
        x = x * number
    return x, numbers == [3, 4, 5], 4 in numbers


@pytest.mark.parametrize("fn", [appends, appends_behind, pops, compares])
def test_a_list_that_is_changed_or_read_as_a_whole_while_a_loop_reads_it(fn):
    graphs_of(fn, lambda k: [k + 2, k + 3, k + 4])


def scaled(x, *, factor, shift=1, **others):
    return x * factor + shift, len(others)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, given: scaled(x, **given),
        lambda x, given: scaled(x, **given, more=3),
        lambda x, given: scaled(x, **{**given, "shift": 2}),
    ],
    ids=["alone", "among others", "in a display"],
)
def test_numbers_of_keyword_arguments_are_live(fn):
    assert graphs_of(fn, lambda k: {"factor": k + 2}) == 2


def test_an_index_is_live():
    assert graphs_of(lambda x, at: torch.arange(24).view(12, 2)[at] * 2, lambda k: k + 2) == 2


def test_an_index_out_of_range_raises():
    compiled = burnish.compile(lambda x, at: x[at] * 2, backend=lambda gm, example_inputs: gm.forward)
    for at in (2, 3, 4):
        assert compiled(torch.arange(5), at) == 2 * at
    with pytest.raises(IndexError):
        compiled(torch.arange(5), 5)


def test_a_counter_in_a_slot_is_compiled_twice():
    class Counter:
        __slots__ = ("n",)

        def __init__(self):
            self.n = 0

    def fn(counter, x):
        counter.n += 1
        return x * counter.n

    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled, ours, plain = burnish.compile(fn, backend=backend), Counter(), Counter()
    for _ in range(5):
        assert torch.equal(compiled(ours, torch.ones(2)), fn(plain, torch.ones(2)))
        assert (type(ours.n), ours.n) == (int, plain.n)
    assert len(graphs) == 2


def test_a_tuple_of_changing_numbers_in_a_slot_keeps_its_identity():
    class Holder:
        __slots__ = ("pair", "kept")

    def fn(x, holder):
        holder.kept = holder.pair
        return x * holder.pair[0], holder.pair

    compiled, holder = burnish.compile(fn, backend="eager"), Holder()
    for i in range(1, 5):
        holder.pair = (i, i / 2)
        y, pair = compiled(torch.ones(2), holder)
        assert torch.equal(y, torch.full((2,), float(i)))
        assert pair is holder.pair and holder.kept is holder.pair


@pytest.mark.parametrize("values", [(0.5, 0.0, 1.0), (0.0, 0.5, 1.0), (1.0, 0.0, 0.5), (0.3, 0.5, 0.0, 1.0, 0.7)])
@pytest.mark.parametrize("of_tensor", [False, True])
def test_dropout_of_nothing_or_of_everything(values, of_tensor):
    def fn(x, p):
        return torch.nn.functional.dropout(x, p.item() if of_tensor else p)

    for backend in ("eager",) if of_tensor else ("burnish", "eager"):
        compiled = burnish.compile(fn, backend=backend)
        for value in values:
            y = compiled(X.float(), torch.tensor(value) if of_tensor else value)
            assert value % 1 or y.tolist() == (X * (1 - int(value))).tolist(), value


@pytest.mark.parametrize("values", [(0.5, 0.0, 1.0), (0.0, 0.5, 1.0)])
def test_dropout_in_vmap_of_nothing_or_of_everything(values):
    def fn(x, p):
        return torch.vmap(lambda row: torch.nn.functional.dropout(row, p), randomness="different")(x)

    compiled = burnish.compile(fn, backend="eager")
    for value in values:
        y = compiled(X.float(), value)
        assert value % 1 or y.tolist() == (X * (1 - int(value))).tolist(), value


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x.clamp(max=n),
        lambda x, n: torch.clamp(x, n, 5.0),
        lambda x, n: x.clone().clamp_min_(n),
        lambda x, n: torch.ops.aten.clamp_max.default(x, n),
        lambda x, n: torch._foreach_maximum([x], n)[0],
        lambda x, n: torch.nn.functional.hardtanh(x, -1.0, n),
    ],
)
def test_bounds_that_are_not_numbers(fn):
    check(fn, (2.5, 0.5, 1.0, 0.7, 0.8, 0.9, 1.1, float("nan"), 1.5), most=3, given=X.float())
