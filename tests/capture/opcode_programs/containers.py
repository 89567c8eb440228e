"""Building, unpacking, comprehensions, strings."""

from . import case
from .operators import Vector


@case()
def building_containers():
    a, b = [1, 2], {"k": 1}
    spread = [0, *a, 3, *a], (*a, 4), {*a, 5}, {**b, "z": 2, **{"k": 3}}
    return spread, [1, 2, 3, 4], {1, 2, 3}, {"a": 1, "b": 2}, [], {}, ()


@case()
def comprehensions():
    n = 3
    x = "outer"
    rows = [[i * j for j in range(n)] for i in range(n)]
    table = {i: {j for j in range(i)} for i in range(n) if i}
    flat = [x for row in rows for x in row if x]
    late = [lambda: i for i in range(2)][0]()
    return rows, table, flat, x, {k: v for k, v in zip("ab", flat)}, late, list(i + n for i in range(2))


@case()
def comprehension_that_fails_gives_the_outer_variable_back():
    x = 7
    try:
        return [1 / x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@case()
def comprehension_over_an_unbound_outer_variable():
    found = [x for x in range(3)]
    if len(found) > 5:
        x = 1
    try:
        return found, x
    except UnboundLocalError as error:
        return found, str(error)


@case()
def comprehensions_with_closures_and_conditions():
    outer = 10
    makers = [lambda k: k + outer + i for i in range(3)]
    outer = 20
    nested = [[y for y in range(x) if y != 1] for x in range(4)]
    return [m(1) for m in makers], [i if i % 2 else -i for i in range(4)], nested


@case(((1, 2, 3),), ([1, 2, 3, 4],), ("abc",), ({"x": 1, "y": 2, "z": 3},))
def unpacking(items):
    first, *rest = items
    *start, last = items
    a, *middle, c = items
    return first, rest, start, last, a, middle, c


@case(((1, 2),), ([1, (2, 3)],), ((1,),), ((1, 2, 3),), (5,), (iter([1, 2, 3, 4]),), ({1: 2},), (None,))
def unpacking_that_may_fail(items):
    try:
        a, b = items
        return a, b
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error), list(items) if hasattr(items, "__next__") else None


@case(((1,),), (7,))
def starred_unpacking_that_may_fail(items):
    try:
        a, *b, c = items
        return a, b, c
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


class Pair:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        yield from self.items


class Loud(list):
    def __iter__(self):
        return iter(["loud"] * len(self))


class Unwilling:
    def __iter__(self):
        raise TypeError("will not")


@case()
def unpacking_user_iterables():
    a, b = Pair(1, 2)
    c, *d = Pair(1, 2, 3)
    e, f = Loud([1, 2])
    try:
        g, h = Unwilling()
    except TypeError as error:
        text = str(error)
    try:
        g, h = Pair(1, 2, 3)
    except ValueError as error:
        return a, b, c, d, e, f, [*Pair(4, 5)], text, str(error)


@case(([1], {1}, {"a": 1}), (5, 5, 5), (None, None, None), ([("a", 1)], [1], [("a", 1)]))
def extending_with_the_wrong_thing(items, members, table):
    found = []
    for attempt in (lambda: [0, *items], lambda: {0, *members}, lambda: {"z": 0, **table}, lambda: (*items, 1)):
        try:
            found.append(attempt())
        except TypeError as error:
            found.append(str(error))
    return found


@case((3.14159, "text", 42))
def formatted_strings(a, b, c):
    width = 8
    return (
        f"{a:.2f} {b!r:>{width}} {c!s} {b!a} {c:#x} {{}} {a!r:^{width}.4}",
        f"{a}{b}",
        f"{c=}",
        f"plain {Vector(1, 2):03d}",
    )


class Badly:
    def __str__(self):
        return 5


@case((lambda: f"{Badly()}",), (lambda: f"{Badly()!s}",), (lambda: f"{1:zzz}",))
def formatting_that_fails(attempt):
    try:
        return attempt()
    except (TypeError, ValueError) as error:
        return str(error)


@case((lambda: {[]: 1},), (lambda: {[]},), (lambda: {**5},), (lambda: {[]: 1 for _ in "a"},))
def building_that_fails(attempt):
    try:
        return attempt()
    except TypeError as error:
        return str(error)
