"""itertools: finite, infinite, grouping; over tensors, sizes and generators."""

import itertools
import types

import torch

import burnish

from .call_sequences import ordinary, swing
from .harness import program


@program(breaks=0)
def test_chain_over_several_lists():
    def fn(xs, ys):
        total = 0
        for n, x in enumerate(itertools.chain(xs, [1.0], ys)):
            total = total + x * n
        return total

    return fn, [
        ([torch.randn(2)], [torch.randn(2), torch.randn(2)]),
        ([], [torch.randn(2)]),
        ([torch.randn(2)], [torch.randn(2), torch.randn(2)]),
    ]


@program(breaks=0)
def test_product_of_index_ranges():
    def fn(x):
        return [x[i, j] * (i + j) for i, j in itertools.product(range(x.shape[0]), range(x.shape[1]))]

    return fn, [(torch.randn(2, 2),), (torch.randn(1, 3),), (torch.randn(2, 2),)]


@program
def test_chain_from_iterable_of_a_generator():
    def fn(x):
        groups = (x[i : i + 2].unbind() for i in range(0, 4, 2))
        return list(itertools.chain.from_iterable(groups))

    return fn, ordinary


@program
def test_zip_longest_fills():
    def fn(xs, ys):
        return [a + b for a, b in itertools.zip_longest(xs, ys, fillvalue=10.0)]

    return fn, [
        ([torch.randn(2)] * 2, [torch.randn(2)]),
        ([torch.randn(2)], [torch.randn(2)] * 3),
        ([torch.randn(2)] * 2, [torch.randn(2)]),
    ]


@program
def test_accumulate_with_a_function_and_a_start():
    def fn(x):
        sums = list(itertools.accumulate(x.unbind()))
        decayed = list(itertools.accumulate(x.unbind(), lambda a, b: a * 0.5 + b, initial=1.0))
        sizes = list(itertools.accumulate([2, 3, 4], max))
        return sums, decayed, sizes

    return fn, ordinary


@program
def test_islice_with_start_stop_step():
    def fn(x, stop):
        return list(itertools.islice((x * n for n in itertools.count(1)), 1, stop, 2))

    return fn, [(torch.randn(2), n) for n in (5, 3, 1, 5)]


@program
def test_repeat_and_count_and_cycle():
    def fn(x):
        out = []
        for scale, shift, y in zip(itertools.cycle([1, 2]), itertools.count(10, 5), itertools.repeat(x, 3)):  # noqa: B905
            out.append(y * scale + shift)
        return out

    return fn, ordinary


@program
def test_groupby_runs_of_equal_sizes():
    def fn(xs):
        return [(n, sum(group)) for n, group in itertools.groupby(xs, key=lambda x: x.shape[0])]

    return fn, [([torch.randn(n) for n in sizes],) for sizes in ((2, 2, 3, 2), (1, 1), (2, 2, 3, 2))]


@program
def test_groupby_on_the_sign_of_data():
    def fn(xs):
        return [
            (sign, torch.stack(list(group)).mean(0))
            for sign, group in itertools.groupby(xs, lambda x: x.sum().item() > 0)
        ]

    return fn, lambda i: ([swing(i), swing(i), swing(i + 1), swing(i)],)


@program
def test_starmap_and_pairwise():
    def fn(x):
        differences = list(itertools.starmap(torch.sub, itertools.pairwise(x.unbind())))
        return differences, list(itertools.starmap(lambda a, b: x * a**b, [(2, 3), (3, 2)]))

    return fn, ordinary


@program
def test_combinations_and_permutations_of_rows():
    def fn(x):
        pairs = [a @ b for a, b in itertools.combinations(x, 2)]
        orders = [x[list(p)].sum() for p in itertools.permutations(range(x.shape[0]), 2)]
        with_self = list(itertools.combinations_with_replacement("ab", 2))
        return torch.stack(pairs), orders, with_self

    return fn, [(torch.randn(3, 2),), (torch.randn(2, 2),), (torch.randn(3, 2),)]


@program
def test_takewhile_and_dropwhile_on_shapes():
    def fn(xs):
        wide = itertools.takewhile(lambda x: x.shape[0] > 1, xs)
        rest = itertools.dropwhile(lambda x: x.shape[0] > 1, xs)
        return [x + 1 for x in wide], [x - 1 for x in rest]

    return fn, [([torch.randn(n) for n in sizes],) for sizes in ((2, 1, 3), (1, 2), (2, 2), (2, 1, 3))]


@program
def test_takewhile_on_data():
    def fn(xs):
        return [x * 2 for x in itertools.takewhile(lambda x: x.min() > 0, xs)]

    return fn, lambda i: ([swing(0), swing(i), swing(1)],)


@program
def test_filterfalse_and_compress():
    def fn(xs, keep):
        odd = list(itertools.filterfalse(lambda x: x.shape[0] % 2 == 0, xs))
        return odd, [x * 2 for x in itertools.compress(xs, keep)]

    return fn, [
        ([torch.randn(2), torch.randn(3)], [1, 0]),
        ([torch.randn(2), torch.randn(3)], [True, True]),
        ([torch.randn(1), torch.randn(3)], [0, 0]),
        ([torch.randn(2), torch.randn(3)], [1, 0]),
    ]


@program
def test_tee_gives_two_independent_iterators():
    def fn(x):
        first, second = itertools.tee(x * n for n in range(3))
        next(first)
        return list(first), list(second)

    return fn, ordinary


@program
def test_count_shared_between_calls():
    numbers = itertools.count(3, 2)

    def fn(x):
        return x * next(numbers) + next(numbers)

    return fn, ordinary


@program
def test_cycle_shared_between_calls():
    scales = itertools.cycle([1.0, 2.0])

    def fn(x):
        return x * next(scales)

    x = torch.randn(2)
    return fn, [(x,)] * 5


@program
def test_iterator_shared_with_the_outside_is_advanced():
    left = []

    def fn(x, it):
        for y in it:
            x = x + y
            if x.sum() > 4:
                break
        left.append(next(it, "empty"))
        return x

    steps = [1.0, 2.0, 3.0, 4.0], [5.0, 2.0], [1.0], [1.0, 2.0, 3.0, 4.0]
    return fn, [(torch.zeros(2), iter(numbers)) for numbers in steps], left


@program
def test_chunks_by_an_iterator_zipped_with_itself():
    def fn(x):
        rows = iter(x.unbind())
        return [torch.stack(pair).prod() for pair in zip(*[rows] * 2)], next(rows, None)  # noqa: B905

    return fn, lambda i: (torch.randn(4 + i % 2),)


@program
def test_itertools_result_returned_without_being_consumed():
    made, seen = [], []

    def fn(x, earlier):
        made.append(itertools.chain([x * 2], (x + n for n in range(2))))
        if earlier:
            seen.append(list(made[-2]))
        return x.sum()

    return fn, [(torch.randn(2), i > 0) for i in range(4)], seen


@program(breaks=0)
def test_copies_of_one_iterator_go_on_by_themselves():
    def fn(x):
        first, second, third = itertools.tee((x + i for i in range(3)), 3)
        head = next(first)
        return head, list(second), list(first), sum(third), list(second)

    return fn, ordinary


def test_iterators_over_python_code_equal_eagers():
    def fn(x):
        def parts():
            yield x
            yield x + 1

        def larger(y):
            return y + 1

        return [
            map(larger, parts()),
            filter(lambda y: y is not None, [x, None]),
            zip(parts(), [x, x]),
            enumerate(parts(), 3),
            itertools.chain(parts(), [x]),
            itertools.islice(parts(), 1),
            itertools.accumulate([x, x]),
            itertools.zip_longest([x], parts(), fillvalue=0),
        ]

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for _ in range(3):
        for want, got in zip(fn(x), compiled(x), strict=True):
            assert type(want) is type(got)
            assert str(list(want)) == str(list(got))


@program(breaks=0)
def test_an_iterator_that_has_begun_is_still_an_instance_of_its_class():
    def fn(x):
        made = map(lambda y: y + 1, [x, x * 2])
        first = next(made)
        return first, isinstance(made, map), type(made) is map, isinstance(made, types.GeneratorType), list(made)

    return fn, ordinary


@program
def test_iterators_refuse_when_they_are_made():
    class Plain:
        pass

    class Wrong:
        def __iter__(self):
            return 3

    def fn(x):
        texts = []
        for make in (
            lambda: enumerate(Plain()),
            lambda: enumerate(Wrong()),
            lambda: zip([1], Wrong()),
            lambda: map(int, 3),
            lambda: map(int),
            lambda: filter(None, Plain()),
            lambda: filter(None),
            lambda: reversed(Plain()),
            lambda: itertools.groupby(Plain()),
            lambda: itertools.accumulate(Wrong()),
            lambda: itertools.islice((n for n in (1, 2)), -1),
            lambda: itertools.starmap(None, Wrong()),
            lambda: enumerate((n for n in ()), "a"),
            lambda: iter(3, 4),
            lambda: zip((n for n in ()), once=True),
        ):
            try:
                make()
            except (TypeError, ValueError) as error:
                texts.append((type(error), str(error)))
            else:
                texts.append("made")
        return x, texts

    return fn, [(torch.ones(2),)]


@program
def test_iterable_makes_its_iterator_when_the_outer_iterator_is_made():
    def fn(x):
        log = []

        class Noted:
            def __init__(self, name):
                self.name = name

            def __iter__(self):
                log.append(self.name)
                return iter([1, 2])

        pairs = zip(Noted("a"), Noted("b"))
        mapped = map(str, Noted("c"))
        log.append("made")
        return x, [*pairs, *mapped], log

    return fn, [(torch.ones(2),)]


@program
def test_iterators_take_their_iterable_by_name():
    def fn(x):
        def numbers():
            yield from (1, 1, 2)

        return (
            x,
            list(enumerate(iterable=numbers(), start=3)),
            list(itertools.accumulate(iterable=numbers(), func=max)),
            [(key, list(group)) for key, group in itertools.groupby(iterable=numbers(), key=None)],
        )

    return fn, [(torch.ones(2),)]


@program
def test_stop_iteration_ends_what_calls_until_a_sentinel():
    class Reversible:
        def __len__(self):
            return 3

        def __getitem__(self, at):
            if at == 0:
                raise StopIteration
            return at

    def fn(x):
        def draw():
            if len(drawn) == 2:
                raise StopIteration
            drawn.append(1)
            return x

        drawn = []
        return list(iter(draw, None)), list(reversed(Reversible()))

    return fn, [(torch.ones(2),)]
