"""Comprehensions: nested, conditional, with walrus, with breaks in them; unpacking and starred targets around them."""

import torch

from .call_sequences import Before, ordinary, swing, swinging
from .harness import program


@program(breaks=0)
def test_list_comprehension_over_tensors():
    def fn(xs):
        return [x * i for i, x in enumerate(xs)]

    return fn, [
        ([torch.randn(2), torch.randn(2)],),
        ([torch.randn(2), torch.randn(2)],),
        ([torch.randn(2), torch.randn(2)],),
    ]


@program(breaks=0)
def test_nested_comprehension_sees_both_variables():
    def fn(x):
        return [[x[i] * x[j] + i for j in range(3) if j != i] for i in range(3)]

    return fn, ordinary


@program(breaks=0)
def test_two_for_clauses_in_one_comprehension():
    def fn(groups):
        return torch.stack([x * 2 for group in groups for x in group])

    return fn, lambda i: ([[torch.randn(2)], [torch.randn(2), torch.randn(2)]],)


@program(breaks=0)
def test_dict_comprehension_swaps_and_filters():
    def fn(params):
        return {f"grad.{name}": p * 0.1 for name, p in params.items() if p.dim() > 1}

    return fn, [
        ({"w": torch.randn(2, 2), "b": torch.randn(2)},),
        ({"w": torch.randn(2, 2), "b": torch.randn(2, 1)},),
        ({"w": torch.randn(2, 2), "b": torch.randn(2)},),
    ]


@program
def test_set_comprehension_of_shapes():
    def fn(xs):
        sizes = {x.shape[0] for x in xs}
        return sorted(sizes), xs[0] * len(sizes)

    return fn, [
        ([torch.randn(2), torch.randn(2)],),
        ([torch.randn(2), torch.randn(3)],),
        ([torch.randn(2), torch.randn(2)],),
    ]


@program
def test_walrus_in_the_condition_leaks_into_the_function():
    def fn(xs):
        kept = [y for x in xs if (y := x * 2).shape[0] > 1]
        return kept, y

    return fn, [
        ([torch.randn(2), torch.randn(1)],),
        ([torch.randn(1), torch.randn(3)],),
        ([torch.randn(2), torch.randn(1)],),
    ]


@program
def test_walrus_running_total():
    def fn(x):
        total = torch.zeros(())
        partial = [total := total + v for v in x.unbind()]
        return torch.stack(partial), total

    return fn, ordinary


@program
def test_comprehension_with_data_dependent_condition():
    def fn(xs):
        return [x + 1 for x in xs if x.sum() > 0]

    return fn, lambda i: ([swing(i), swing(i + 1), swing(i)],)


@program
def test_comprehension_with_conditional_expression_on_data():
    def fn(xs):
        return {k: (x.log() if x.min() > 0 else x.exp()) for k, x in xs.items()}

    return fn, lambda i: ({"a": swing(i), "b": swing(i + 1)},)


@program
def test_comprehension_variable_does_not_leak():
    def fn(x):
        i = x * 100
        rows = [i for i in x.unbind()]
        return i, rows

    return fn, ordinary


@program
def test_comprehension_over_a_list_that_grows_between_calls():
    layers = [1.0, 2.0]

    def fn(x):
        return [x * layer for layer in layers]

    x = torch.randn(2)
    return fn, [(x,), (x, Before(lambda: layers.append(3.0))), (x, Before(lambda: layers.pop())), (x,)]


@program
def test_comprehension_calls_an_outside_function_with_state():
    taken = []

    def take(x):
        taken.append(len(taken))
        return x * len(taken)

    def fn(x):
        return [take(v) for v in x.unbind()]

    return fn, ordinary, taken


@program
def test_comprehension_inside_a_comprehension_condition():
    def fn(xs):
        return [x for x in xs if all(s > 1 for s in x.shape)]

    return fn, [
        ([torch.randn(2, 2), torch.randn(2, 1)],),
        ([torch.randn(1, 2), torch.randn(1, 1)],),
        ([torch.randn(2, 2), torch.randn(2, 1)],),
    ]


@program(breaks=0)
def test_lambda_in_a_comprehension_called_at_once():
    def fn(x):
        return [(lambda y, k=k: y**k)(x) for k in range(1, 4)]

    return fn, ordinary


@program
def test_exception_inside_a_comprehension():
    def fn(sizes, x):
        try:
            return [x.reshape(n, -1) for n in sizes]
        except RuntimeError as error:
            return x, "invalid" in str(error)

    return fn, [([1, 2], torch.randn(4)), ([1, 3], torch.randn(4)), ([1, 2], torch.randn(4))]


@program
def test_comprehension_over_dict_views():
    def fn(stats, x):
        values = [v * 2 for v in stats.values()]
        stats["x"] = x
        return values, [k.upper() for k in stats], [k for k, _ in stats.items()]

    return fn, [
        ({"a": torch.randn(1)}, torch.randn(2)),
        ({"a": torch.randn(1), "b": 2}, torch.randn(2)),
        ({"a": torch.randn(1)}, torch.randn(2)),
    ]


@program(breaks=0)
def test_starred_unpacking_of_a_shape():
    def fn(x):
        batch, *middle, last = x.shape
        return x.reshape(batch, -1, last), middle

    return fn, [(torch.randn(2, 3, 4),), (torch.randn(2, 3, 5, 4),), (torch.randn(2, 4),), (torch.randn(2, 3, 4),)]


@program(breaks=0)
def test_nested_unpacking_of_tuples():
    def fn(pair):
        (a, (b, *rest)), *tail = pair
        return a + b, rest, tail

    return fn, lambda i: (((torch.randn(2), (torch.randn(2), 1, 2)), "tail", torch.randn(1)),)


@program
def test_unpacking_a_wrong_number_of_values():
    def fn(x):
        try:
            a, b = x.shape
        except ValueError as error:
            return x * 2, str(error)
        return x.reshape(b, a), a

    return fn, [(torch.randn(2, 3),), (torch.randn(2, 3, 4),), (torch.randn(2),), (torch.randn(2, 3),)]


@program(breaks=0)
def test_unpacking_a_tensor_by_rows():
    def fn(x):
        a, b, c = x
        first, *others = x + 1
        return a * b - c, first, others

    return fn, lambda i: (torch.randn(3, 2),)


@program(breaks=0)
def test_displays_with_stars():
    def fn(x, more):
        items = [x, *more, *(x * 2, x * 3)]
        table = {"x": x, **{"n": len(items)}, **{"x": x + 1}}
        return items, table, (*items[:2],)

    return fn, [(torch.randn(2), [1]), (torch.randn(2), []), (torch.randn(2), [1])]


@program
def test_assignment_targets_are_set_from_left_to_right():
    def fn(x):
        items = [0, 0, 0]
        i = 0
        i, items[i] = 1, x
        i = items[i] = 2
        a = b = items
        a.append(x * 2)
        return items, b is a, i

    return fn, ordinary


@program
def test_swap_without_a_temporary():
    def fn(xs, i):
        xs[0], xs[i] = xs[i], xs[0]
        a, b, c = xs
        a, b, c = c, a, b
        return a - b * c

    return fn, [([torch.randn(2) for _ in range(3)], i) for i in (1, 2, 1)]


@program
def test_data_dependent_filter_of_filter():
    def fn(x):
        rows = [r for r in x.unbind() if r.sum() > 0]
        big = [r * 2 for r in rows if r.max() > 1]
        return len(rows), big

    return fn, lambda i: (torch.randn(5, 3),)


@program
def test_nested_functions_in_a_comprehension_close_over_the_last_value():
    def fn(x):
        readers = [lambda: x * k for k in range(3)]
        return [reader() for reader in readers]

    return fn, swinging
