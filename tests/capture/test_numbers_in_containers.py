"""Numbers in tuples, lists and dictionaries that change from call to call: few segments, and what Python computes."""

import collections

import pytest
import torch

import burnish
from burnish import events

X = torch.ones(2)


def described(value):
    """A value with all types, for a comparison."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, tuple(value.shape), repr(value.tolist())
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value), *map(described, value)]
    return type(value), repr(value)


def outcome(fn, args, state):
    try:
        found = fn(*args)
    except Exception as error:
        found = type(error), str(error)
    return described(found), described(state)


def check(make, calls, most=None, **options):
    """Compare with plain Python, and that no more than so many segments were made. ``calls`` change the state and
    return the arguments."""
    segments = []
    (plain, state), (fn, other) = make(), make()
    compiled = burnish.compile(fn, **{"backend": "eager", "recompile_limit": 1000} | options)
    stop = events.subscribe(segments.append, ("segment",))
    try:
        for i, call in enumerate(calls):
            want = outcome(plain, call(state), state)
            assert outcome(compiled, call(other), other) == want, i
    finally:
        stop()
    assert most is None or len(segments) <= most


def given(*rows):
    return [lambda state, row=row: (X, *row) for row in rows]


NUMBERS = (0, 1, -1, 2, 1.0, 0.0, -0.0, True, 10**30, 1e308, float("inf"), float("nan"), -3, 3, 3, 3.0, "x", None, 5)


def holds_a_tuple():
    state = {"pair": (0.5, 1), "other": (0.5, 1)}

    def fn(x):
        pair = state["pair"]
        y = x * pair[0] + pair[1]
        return y, pair, pair is state["pair"], pair is state["other"], pair == state["other"], pair in [state["other"]]

    return fn, state


def sets(first, second, is_same):
    def call(state):
        state["pair"] = (first, 1)
        state["other"] = state["pair"] if is_same else (second, 1)
        return (X,)

    return call


def test_a_tuple_of_changing_numbers_keeps_its_identity():
    check(holds_a_tuple, [sets(a, b, same) for a in (0.5, 1.5, 2.5, 1, -1) for b in (a, 2.5) for same in (True, False)])


def test_the_address_of_a_tuple_of_changing_numbers():
    state = {}

    def fn(x):
        pair = state["pair"]
        return x * pair[0], id(pair), id(pair) == id(state["pair"])

    compiled = burnish.compile(fn, backend="eager")
    for i in range(4):
        state["pair"] = (i + 0.5, i)
        y, address, is_same = compiled(X)
        assert torch.equal(y, X * (i + 0.5))
        assert address == id(state["pair"]) and is_same


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_a_tuple_holds_any_number(backend):
    check(holds_a_tuple, [sets(number, 2.5, False) for number in NUMBERS], backend=backend)


def test_numbers_in_a_tuple_behind_a_break_are_inputs():
    def make():
        def fn(x, n):
            best = (0.0, -1)
            for j in range(3):
                score = (x * (j + n)).sum().item()
                if score > best[0]:
                    best = (score, j)
            return x * best[0] + best[1], best

        return fn, {}

    check(make, given(*[(i + 1,) for i in range(12)]), most=8)


def test_tuples_in_a_list_that_a_loop_reads_are_live():
    def make():
        state = {"beams": [(0.5, "a", X), (1.5, "b", X * 2)]}

        def fn(x, n):
            beams = [(score + n, name, t + x * score) for score, name, t in state["beams"]]
            state["beams"] = sorted(beams, key=lambda beam: -beam[0])
            return state["beams"][0]

        return fn, state

    check(make, given(*[(0.25 * i + 1,) for i in range(8)]), most=3)


def test_the_end_of_a_list_that_grows_is_read_in_one_segment():
    def make():
        state = {"log": [], "losses": [1.0]}

        def fn(x, n):
            log, losses = state["log"], state["losses"]
            old = losses[-1]
            losses.append(old * 0.5 + n)
            log.append(f"{losses[-1]:.3f}")
            log.append(n)
            return x * losses[-1], log[-2], log[-1], len(log), len(losses) > 6

        return fn, state

    check(make, given(*[(float(i),) for i in range(12)]), most=3)
    check(make, given(*[(number,) for number in NUMBERS[:6]]))


def test_reads_past_what_was_appended_are_guarded():
    def make():
        state = {"items": [], "same": None}

        def fn(x, n):
            items, same = state["items"], state["same"]
            before = same[-1] if same else 0
            items.append(n)
            second = items[-2]
            return x * second + before, items[0], len(same or ()), items is same, items.pop(), list(items)

        return fn, state

    def shares(n):
        def call(state):
            state["items"].append(float(n))
            state["same"] = state["items"] if n % 3 == 0 else [float(n), 2.0 * n]
            return X, n * 0.5

        return call

    check(make, given((1.0,), (2.0,)) + [shares(n) for n in range(9)])


def reads_at_an_index():
    state = {"items": [0.5, 1.5, 2.5, 3, True, 2.5], "i": 0}

    def fn(x):
        items, i = state["items"], state["i"]
        first, second, third = items[i], (10.0, 20.0, 30.0)[i % 3], [1, 2, 3][-(i % 3)]
        state["i"] = i + 1
        return x * first + second * third, first, second, third, first is items[i]

    return fn, state


def at(i, items=None):
    def call(state):
        state["i"] = i
        if items is not None:
            state["items"] = items
        return (X,)

    return call


def test_an_element_at_a_live_index_is_live():
    check(reads_at_an_index, given((), (), ()), most=2)
    check(reads_at_an_index, [at(i) for i in (0, 1, 2, 3, 4, 5, -1, -6, -7, 6, True, 2.0, 0, 10**30)])


def test_a_list_with_other_elements_is_read_at_a_live_index():
    lists = (None, None, [1.0, 2.0, 3.0], (1.0, 2, 3), [float("nan"), -0.0, 0.0], [0.0], "abc", [X, X], [2.0, 3.0])
    check(reads_at_an_index, [at(i % 3, items) for i, items in enumerate(lists * 2)])


def test_an_element_at_a_live_index_is_that_before_the_writes():
    def make():
        state = {"items": [0.5, 1.5, 2.5, 3.5], "i": 0, "seen": []}

        def fn(x):
            items, i = state["items"], state["i"]
            first, n = items[i % 4], len(items)
            state["seen"].append(first)
            items.append(first + 1)
            items[i % 4] = first * 2
            state["i"] += 1
            return x * first, first, n, len(items), items[-1], items[i % 4], f"{first} {n}"

        return fn, state

    for options in ({}, {"fullgraph": True}, {"dynamic": True}):
        check(make, given(*[()] * 8), **options)


def test_a_dictionary_that_was_written_to_is_copied_in_one_segment():
    def make():
        state = {"sums": {"loss": 1.0, "n": 0}}

        def fn(x, n):
            sums = state["sums"]
            sums["loss"] += n
            sums["n"] += 1
            found = dict(sums), sums.copy(), {**sums}, dict(sums, z=1)
            found[0]["loss"] = 0
            return x * sums["loss"], found, found[1]["loss"] is sums["loss"]

        return fn, state

    def with_other_keys(change):
        def call(state):
            change(state["sums"])
            return X, 1.5

        return call

    check(make, given(*[(float(i),) for i in range(6)]), most=3)
    changes = (
        lambda sums: sums.update(q=4),
        lambda sums: sums.pop("loss") and sums.update(loss=2.0),
        lambda sums: sums.update(loss=7),
        lambda sums: sums.pop("q"),
    )
    check(make, given((1.0,), (2.0,)) + [with_other_keys(change) for change in changes])


def adds_a_key(x, d):
    d["new"] = 3
    return x * d["a"]


def deletes_a_key(x, d):
    del d["b"]
    return x * d["a"]


def moves_a_key(x, d):
    d["a"] = d.pop("a") + 1
    return x * d["a"]


def replaces_a_key(x, d):
    adds_a_key(x, d)
    return deletes_a_key(x, d)


@pytest.mark.parametrize("write", [adds_a_key, deletes_a_key, moves_a_key, replaces_a_key])
def test_a_copy_of_a_dictionary_has_the_keys_of_its_time(write):
    def fn(x, d):
        y, merged = write(x, d), {"z": 1}
        copies = d.copy(), dict(d), {**d}, dict(**d), {"z": 0, **d}, merged
        merged.update(d)
        return y, [list(copy.items()) for copy in copies]

    check(lambda: (fn, None), [lambda _, i=i: (X, {"a": i, "b": 2.5 * i, "c": 0}) for i in range(1, 6)])


def test_numbers_of_long_containers_are_not_inputs_of_graphs():
    calls = {
        lambda x, numbers: x * torch.tensor(list(numbers)).sum(): list,
        lambda x, numbers: x * torch.tensor(numbers + [1.0]).sum(): list,
        lambda x, numbers: x * torch.tensor(list(dict(numbers).values())).sum(): lambda each: dict(enumerate(each)),
        lambda x, numbers: x * (sum(numbers) / len(numbers)): collections.deque,
    }
    for fn, kind in calls.items():
        inputs = []

        def backend(module, examples, inputs=inputs):
            inputs.append(len(examples))
            return module.forward

        compiled = burnish.compile(fn, backend=backend)
        for i in range(5):
            numbers = kind(k + i / 2 for k in range(100))
            torch.testing.assert_close(compiled(X, numbers), fn(X, numbers))
        assert max(inputs) < 5


@pytest.mark.parametrize("fullgraph", [False, True])
def test_texts_of_live_numbers_are_formatted_in_one_segment(fullgraph):
    def make():
        state = {"log": []}

        def fn(x, step):
            loss, count = (x * step).sum().item(), x.long().sum().item()
            state["log"].append("step %s %.2f %5.1f%%" % (step, loss, loss))
            return x, "%d of %d" % (count, 7), "%d" % count, "{:>8} {:.3f} {!r}".format(step, loss, count)

        return fn, state

    check(make, given(*[(float(i),) for i in range(6)]), most=2, fullgraph=fullgraph)
    check(make, given(*[(number,) for number in NUMBERS[:12]]), fullgraph=fullgraph)


def test_a_format_that_refuses_the_number_of_a_later_call():
    def make():
        state = {"log": []}

        def fn(x, step):
            state["log"].append("begins")
            state["log"].append("%d" % (x * step).sum().item())
            return x

        return fn, state

    check(make, given((1.0,), (2.0,), (float("nan"),), (3.0,), (float("inf"),)))


def test_shapes_in_texts_beside_live_numbers():
    def make():
        state = {"n": 0}

        def fn(x):
            state["n"] += 1
            text = str(state["n"]) + " %s %s"
            return x, "%s %s" % (x.shape, state["n"]), "{} {}".format(x.shape, state["n"]), text % x.shape

        return fn, state

    for dynamic in (None, True):
        check(make, [lambda state, n=n: (torch.ones(n, 2),) for n in (2, 3, 4, 5, 1, 0, 7)], dynamic=dynamic)


def test_the_largest_of_a_generator_is_live():
    def make():
        def fn(x, *numbers):
            most, least = max(n for n in numbers), min(n for n in numbers)
            if x.shape[0] == 2:
                return x * most + least, most, least
            return x * most + least, max((n for n in numbers), key=lambda n: -n), most is numbers[0]

        return fn, {}

    check(make, given((0, 1, 2), (3, 9, 5), (9, 4, 1), (8, 7, 7), (2, 6, 5)), most=2)
    nan = float("nan")
    rows = (1, 1, 1), (1.0, 1, True), (1, 1.0, 2), (nan, 1, 2), (-1, -2.0, nan), (0.0, -0.0, 0), (-0.0, 0.0, 1)
    check(make, given(*rows, *rows))
    check(make, [lambda state, row=row: (torch.ones(3), *row) for row in rows * 2])


def test_ragged_batches_are_padded_in_few_segments():
    def make():
        def fn(items):
            n = max(len(x) for x in items)
            return torch.stack([torch.nn.functional.pad(x, (0, n - len(x))) for x in items])

        return fn, {}

    rows = ((3, 5, 4), (7, 2, 6), (4, 4, 8), (2, 9, 3), (5, 6, 7), (9, 9, 2), (6, 5, 4))
    check(make, [lambda state, row=row: ([torch.ones(n) for n in row],) for row in rows], most=4)


def test_comparisons_run_between_the_elements_of_a_generator():
    def make():
        state = {"seen": []}

        class Own:
            def __init__(self, n):
                self.n = n

            def __gt__(self, other):
                state["seen"].append("compared")
                return self.n > (other.n if isinstance(other, Own) else other)

            __lt__ = __gt__

        def fn(x, a, b):
            def elements():
                for element in (a, b, Own(a + b), a, Own(b)):
                    state["seen"].append("taken")
                    yield element

            found = max(elements())
            return x * (found.n if isinstance(found, Own) else found)

        return fn, state

    check(make, given(*[(float(i), 3.0 - i) for i in range(5)]))
