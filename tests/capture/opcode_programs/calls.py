"""Calls of every shape, functions made, code too long for one-byte arguments."""

import sys

from . import case
from .containers import Pair, Unwilling


def takes_all(a, b=2, /, c=3, *rest, d, e=5, **others):
    return a, b, c, rest, d, e, others


@case()
def calls_of_every_shape():
    args, kwargs = (1, 2), {"d": 4, "z": 6}
    return (
        takes_all(1, d=2),
        takes_all(*args, **kwargs),
        takes_all(*args, 7, 8, 9, d=1, **{"q": 1}),
        takes_all(0, *[1], c=5, d=6),
        takes_all(*iter("ab"), d=0),
        takes_all(*Pair(5, 6), **kwargs, e=9),
        dict(a=1, **kwargs),
        max(*args, key=lambda v: -v),
    )


NOTHING = None


@case(
    (lambda: takes_all(),),
    (lambda: takes_all(1),),
    (lambda: takes_all(1, a=1, d=2),),
    (lambda: takes_all(1, 2, 3, c=3, d=2),),
    (lambda: takes_all(1, d=1, **{"d": 2}),),
    (lambda: takes_all(*5, d=1),),
    (lambda: takes_all(1, **5),),
    (lambda: len(*5),),
    (lambda: takes_all(1, **{1: 2}),),
    (lambda: (lambda x: x)(1, 2),),
    (lambda: (lambda *, x: x)(),),
    (lambda: NOTHING(),),
    (lambda: len(1, **{"a": 1}, **{"a": 2}),),
    (lambda: takes_all(*Unwilling(), d=1),),
)
def calls_that_fail(attempt):
    try:
        return attempt()
    except TypeError as error:
        return str(error)


@case((5,))
def recursion(n):
    def factorial(k):
        return 1 if k < 2 else k * factorial(k - 1)

    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    return factorial(n), even(n), odd(n)


@case()
def natives_that_call_back():
    added = list(map(lambda a, b: a + b, [1, 2], [3, 4]))
    return sorted([3, 1, 2], key=lambda v: -v), added, list(filter(None, [0, 1]))


PART = """
            v{i} = x + {n}
            if v{i} == 1: total += 'a{i}'
            total += str(v{i} % 7)"""
LONG = f"""
def long_function(x):
    total = ""
    try:
        for i in range(2):{"".join(PART.format(i=i, n=1000 + i) for i in range(300))}
            total += str(i)
        def inner():
            return v299, total
        return inner(), v0, 1 // (x - 5)
    except ZeroDivisionError as error:
        return str(error), total, v299
"""
SPACE: dict = {}
exec(LONG, SPACE)
long_function = case((-1000,), (5,))(SPACE["long_function"])


@case()
def arguments_of_exec_and_frames():
    space = {}
    exec("made = 5", space)
    return space["made"], sys.exc_info(), eval("COUNT", {"COUNT": 9}), type(iter([]))
