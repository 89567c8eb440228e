"""Iterators: kept across breaks, shared, exhausted, over tensors, dicts, files of text and changing lists."""

import collections
import io
import itertools
import operator
import os

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program(breaks=0)
def test_iterating_a_tensor_gives_its_rows():
    def fn(x):
        total = 0
        for i, row in enumerate(x):
            total = total + row * i
        return total

    return fn, [(torch.randn(3, 2),), (torch.randn(2, 2),), (torch.randn(3, 2),)]


@program
def test_list_iterator_survives_a_break():
    def fn(xs):
        it = iter(xs)
        first = next(it)
        if first.sum() > 0:
            first = first + next(it)
        return first, list(it)

    return fn, lambda i: ([swing(i), swing(0), swing(1)],)


@program
def test_list_grows_while_it_is_iterated():
    def fn(x):
        items = [1]
        for n in items:
            x = x + n
            if len(items) < 4:
                items.append(n * 2)
        return x, items

    return fn, ordinary


@program
def test_outside_list_shrinks_while_it_is_iterated_over_breaks():
    def fn(items, x):
        for n in items:
            x = x + n
            if x.sum() > 3:
                items.remove(n)
        return x

    return fn, [([1, 2, 3, 4], torch.full((2,), v)) for v in (0.0, 3.0, -9.0, 0.0)]


@program
def test_dict_items_iterated_over_breaks():
    def fn(d):
        out = {}
        for name, x in d.items():
            out[name] = x * 2 if x.sum() > 0 else x - 1
        return out

    return fn, lambda i: ({"a": swing(i), "b": swing(i + 1)},)


@program
def test_two_nested_loops_over_one_iterator():
    def fn(x):
        it = iter(range(8))
        for a in it:
            for b in it:
                x = x + a * b
                if b % 3 == 0:
                    break
        return x, list(it)

    return fn, ordinary


@program
def test_exhausted_iterator_stays_exhausted():
    def fn(xs):
        it = map(torch.neg, xs)
        return sum(it), list(it), next(it, None)

    return fn, lambda i: ([torch.randn(2), torch.randn(2)],)


@program
def test_for_loop_over_a_zip_with_a_break_in_it():
    def fn(xs, scales):
        out = []
        for n, (x, s) in enumerate(zip(xs, scales)):  # noqa: B905
            if x.max() > 1:
                x = x / s
            out.append(x + n)
        return out

    return fn, lambda i: ([swing(i), swing(i + 1), swing(0)], [1.0, 2.0, float(3 + i % 2)])


@program
def test_unpacking_consumes_an_iterator_partly():
    def fn(x):
        it = iter([x, x + 1, x + 2])
        a, b = next(it), next(it)
        (c,) = it
        d, *e = map(torch.sin, (a, b))
        return a + b * c, d, e

    return fn, ordinary


@program
def test_class_iterable_makes_a_fresh_iterator_each_time():
    class Layers:
        def __init__(self, scales):
            self.scales, self.walks = scales, 0

        def __iter__(self):
            self.walks += 1
            return iter(self.scales)

    layers = Layers([1.0, 2.0])

    def fn(x):
        for s in layers:
            x = x * s
        return x, list(layers), max(layers)

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: layers.scales.append(3.0))), (x,)], layers


@program
def test_iterator_class_with_a_break_in_next():
    class Until:
        def __init__(self, x):
            self.x, self.n = x, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.x.sum() > 5 or self.n == 4:
                raise StopIteration
            self.x, self.n = self.x + 1, self.n + 1
            return self.x

    def fn(x):
        return [y * 2 for y in Until(x)]

    return fn, [(torch.full((2,), v),) for v in (0.0, 9.0, -9.0, 1.0)]


@program
def test_object_is_not_iterable():
    class Layer: ...

    def fn(x):
        try:
            for _ in Layer():
                pass
        except TypeError as error:
            return x, str(error)

    return fn, ordinary


@program
def test_batches_by_strides_and_slices():
    def fn(x, size):
        return [x[i : i + size].mean() for i in range(0, len(x), size)]

    return fn, [(torch.randn(7), n) for n in (2, 3, 7, 2)]


@program
def test_enumerate_object_shared_by_two_loops():
    def fn(xs):
        numbered = enumerate(xs, 1)
        for n, x in numbered:
            if n == 2:
                break
        return x, [(n, y * n) for n, y in numbered]

    return fn, lambda i: ([torch.randn(2) for _ in range(4)],)


@program
def test_iterator_of_an_earlier_call_goes_on_in_the_next():
    held = {}

    def fn(x):
        it = held.setdefault("it", iter([1.0, 2.0, 3.0]))
        return x * next(it), next(it, "end")

    return fn, ordinary


@program
def test_lines_of_a_text_stream():
    def fn(x, text):
        total = 0
        for line in io.StringIO(text):
            total += int(line.strip() or 0)
        return x * total

    return fn, [(torch.randn(2), t) for t in ("1\n2\n", "5\n\n", "1\n2\n")]


@program
def test_reading_a_list_by_index_while_a_break_changes_it():
    def fn(items):
        i = 0
        while i < len(items):
            if items[i].sum() > 0:
                items[i] = items[i] * 2
                i += 1
            else:
                del items[i]
        return len(items)

    return fn, lambda i: ([swing(i), swing(i + 1), swing(i)],)


@program
def test_loop_variable_survives_the_loop():
    def fn(xs):
        for i, x in enumerate(xs):  # noqa: B007
            pass
        return x * (i + 1)

    return fn, [([torch.randn(2)] * n,) for n in (1, 3, 0, 1)]


@program
def test_data_dependent_loop_over_rows_stops_a_generator_and_a_list():
    def fn(x):
        rows = (row * 2 for row in x)
        out = []
        for row in rows:
            out.append(row)
            if row.sum() > 0:
                break
        return out, len(list(rows))

    return fn, lambda i: (torch.stack([swing(i + 1, 2), swing(i, 2), swing(i, 2)]),)


@program
def test_star_of_a_tensor_and_of_a_generator():
    def add(*parts):
        return sum(parts), len(parts)

    def fn(x):
        return add(*x), add(*(row + 1 for row in x)), [*x.sum(0)]

    return fn, lambda i: (torch.randn(2 + i % 2, 2),)


@program
def test_membership_in_ranges_tuples_and_strings():
    def fn(x, n):
        hit = n in (1, 2) or n in range(5, 9, 2) or str(n) in "34"
        return (x + 1 if hit else x), n not in [1]

    return fn, [(torch.randn(2), n) for n in (1, 3, 6, 7, 1)] + [swinging(0) + (9,)]


@program(breaks=0)
def test_unpacking_calls_iter_and_not_len():
    class Unsized(tuple):
        def __len__(self):
            raise NotImplementedError

    class Twice(tuple):
        def __iter__(self):
            return iter([2 * value for value in tuple.__iter__(self)])

    class Backwards(list):
        def __iter__(self):
            return reversed(self)

    given = Unsized((5.0, 6.0)), Twice((3.0, 4.0)), Backwards((7.0, 8.0))

    def fn(x, unsized, twice, backwards):
        a, b = Unsized((1, 2))
        c, *d = twice
        e, f = unsized
        g, h = backwards
        return x * a + b, c, d, e * x, f, g, h * x

    return fn, [(torch.randn(2), *given) for _ in range(3)]


@program
def test_iterator_that_takes_no_weak_reference():
    def fn(x):
        with os.scandir(os.path.dirname(torch.__file__)) as entries:
            return x, any(entry.name == "__init__.py" for entry in entries)

    return fn, [(torch.ones(2),)]


@program
def test_list_and_deque_searched_while_their_elements_change_them():
    class Clearing:
        def __init__(self, items):
            self.items = items

        def __eq__(self, other):
            self.items.clear()
            return False

    class Unequal:
        def __eq__(self, other):
            return False

    def fn(x):
        items, texts = [], []
        queue = collections.deque([Unequal(), 2])
        for use in (lambda: items.index(3), lambda: items.remove(3), lambda: queue.index(7), lambda: queue.remove(7)):
            items[:] = [Clearing(items), Clearing(items)]
            try:
                use()
            except ValueError as error:
                texts.append(str(error))
        return x, texts

    return fn, [(torch.ones(2),)]


@program(breaks=0)
def test_objects_with_rules_of_their_own_come_out_of_iterators_and_views():
    asked = []

    class Number:
        def __init__(self, n):
            self.n = n

        def __bool__(self):
            asked.append(("truth", self.n))
            return self.n > 0

        def __lt__(self, other):
            asked.append(("order", self.n, other.n))
            return self.n < other.n

    def fn(x):
        table = {n: Number(n) for n in (2, 0, 1)}
        least = min(iter(table.values()))
        picked = list(itertools.compress("abc", table.values()))
        return x + least.n, any(reversed(list(table.values()))), all(table.values()), picked

    return fn, ordinary, asked


@program(breaks=0)
def test_groups_join_identical_or_equal_keys():
    def fn(x):
        nothing = float("nan")
        return x, [len(list(group)) for _, group in itertools.groupby([nothing, nothing, 1.0])]

    return fn, ordinary


@program(breaks=0)
def test_elements_of_any_iterable_are_counted_and_found():
    class Same:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

    def fn(x):
        found = [
            operator.countOf({1: 2, 3: 2}.values(), 2),
            operator.indexOf((Same(1), Same(2)), Same(2)),
            operator.countOf(iter([1, 1, 2]), 1),
        ]
        for search, items in ((operator.indexOf, [1]), (operator.countOf, 3), (operator.indexOf, None)):
            try:
                search(items, 2)
            except (TypeError, ValueError) as error:
                found.append(str(error))
        return x + 1, found

    return fn, ordinary
